// Prepares the same documents in every form that ./prepare reads, each written by a program that is not ours, and compares the tokens:
// .jsonl plain, gzip and zstd; .txt in tar and tar.gz; Parquet by DuckDB, by Rust's parquet crate and by hyparquet-writer with all codecs.
//
//   npm install --prefix DIR @duckdb/node-api parquet-wasm hyparquet-writer
//   node scripts/compare_forms.mjs --package DIR [--prepare ./prepare] [--tokenizer FILE | --vocab-size N] DOCS...
//
// DOCS are .txt and .jsonl files and folders of them. A tokenizer is trained on the first form when none is given. Prints one line a form, with
// the SHA-256 of its shards; exit 1 if any differs. Needs tar, and as much room in TMPDIR as four times the documents.
import crypto from 'crypto';
import fs from 'fs';
import path from 'path';
import zlib from 'zlib';
import { fail, importPackages, readFlags, run, temporaryFolder } from './compare.mjs';

const usage = 'usage: node scripts/compare_forms.mjs --package DIR [--prepare ./prepare] [--tokenizer FILE | --vocab-size N] DOCS...';
const { options, files } = readFlags(usage, { package: null, prepare: './prepare', tokenizer: null, 'vocab-size': '8192' });
const [duckdb, arrow, hyparquet] = await importPackages(options.package, ['@duckdb/node-api', 'parquet-wasm', 'hyparquet-writer']);
if (files.length === 0) {
  fail(usage, 2);
}

const utf8 = new TextDecoder('utf-8', { fatal: true });   // drops a byte order mark, as ./prepare does at the start of a .txt
const byBytes = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b));

function* documents(file) {
  if (fs.statSync(file).isDirectory()) {
    for (const name of fs.readdirSync(file).sort(byBytes)) {
      yield* documents(path.join(file, name));
    }
  } else if (file.endsWith('.txt')) {
    yield utf8.decode(fs.readFileSync(file));
  } else if (file.endsWith('.jsonl')) {
    for (const line of utf8.decode(fs.readFileSync(file)).split('\n').filter((text) => text.trim() !== '')) {
      yield JSON.parse(line).text;
    }
  }
}
const texts = files.flatMap((file) => [...documents(file)]).filter((text) => text !== '');
const work = temporaryFolder();
const inWork = (name) => path.join(work, name);

// SHA-256 over the shards in order of their names.
function hashOf(folder) {
  const hash = crypto.createHash('sha256');
  for (const name of fs.readdirSync(folder).filter((file) => file.endsWith('.bin')).sort()) {
    hash.update(`${name}\n`).update(fs.readFileSync(path.join(folder, name)));
  }
  return hash.digest('hex');
}

let expected = null, failures = 0;
function compare(name, inputs, flags) {
  const out = inWork('out');
  run(options.prepare, [...inputs, '--out', out, ...flags]);
  const state = JSON.parse(fs.readFileSync(path.join(out, 'prepare.json'), 'utf8'));
  const actual = { documents: state.train.documents, tokens: state.train.tokens, held: state.validation.tokens, hash: hashOf(out) };
  expected ??= actual;
  const same = actual.hash === expected.hash && actual.documents === expected.documents;
  failures += same ? 0 : 1;
  console.log(`${same ? 'ok    ' : 'FAILED'}  ${name}: ${actual.documents} documents, ${actual.tokens} and ${actual.held} tokens, ${actual.hash.slice(0, 16)}`);
  if (inputs !== files) {
    inputs.forEach((input) => fs.rmSync(input));
  } else if (!options.tokenizer) {
    fs.copyFileSync(path.join(out, 'tokenizer.json'), inWork('tokenizer.json'));
    options.tokenizer = inWork('tokenizer.json');
  }
  fs.rmSync(out, { recursive: true });
}
const compareFile = (name, file) => compare(name, [file], ['--tokenizer', options.tokenizer]);

compare('the files given', files, options.tokenizer ? ['--tokenizer', options.tokenizer] : ['--vocab-size', options['vocab-size']]);
console.log(`        ${texts.length} documents, ${texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0)} bytes; SHA-256 ${expected.hash}`);

// Text.
const lines = inWork('kept.jsonl');
const handle = fs.openSync(lines, 'w');
texts.forEach((text, row) => fs.writeSync(handle, `${JSON.stringify({ row, text })}\n`));
fs.closeSync(handle);
fs.copyFileSync(lines, inWork('lines.jsonl'));
compareFile('.jsonl', inWork('lines.jsonl'));
fs.writeFileSync(inWork('lines.jsonl.gz'), zlib.gzipSync(fs.readFileSync(lines), { level: 1 }));
compareFile('.jsonl.gz', inWork('lines.jsonl.gz'));
fs.mkdirSync(inWork('texts'));
const names = texts.map((text, row) => `${String(row).padStart(8, '0')}.txt`);
texts.forEach((text, row) => fs.writeFileSync(path.join(inWork('texts'), names[row]), text));
fs.writeFileSync(inWork('names'), `${names.join('\n')}\n`);
for (const [suffix, flag] of [['.tar', '-cf'], ['.tar.gz', '-czf']]) {
  run('tar', [flag, inWork(`texts${suffix}`), '-C', inWork('texts'), '-T', inWork('names')]);
  compareFile(`${suffix} of .txt`, inWork(`texts${suffix}`));
}
fs.rmSync(inWork('texts'), { recursive: true });

// DuckDB. Its Brotli, at the highest level, takes minutes for 100 MB: the other two writers' is compared below.
const connection = await (await duckdb.DuckDBInstance.create(':memory:')).connect();
const quoted = (text) => `'${text.replaceAll("'", "''")}'`;
const copy = (file, how) => connection.run(`copy documents to ${quoted(file)} (${how})`);
await connection.run(`create table documents as select * from read_json(${quoted(lines)}, format = 'newline_delimited',
  maximum_object_size = 1073741824, columns = {row: 'INTEGER', text: 'VARCHAR'})`);
await copy(inWork('lines.jsonl.zst'), 'format json, compression zstd');
compareFile('.jsonl.zst', inWork('lines.jsonl.zst'));
const table = inWork('table.parquet');
for (const [codec, version, rows] of [['uncompressed', 'v1', 122880], ['snappy', 'v1', 2048], ['gzip', 'v2', 4096], ['zstd', 'v2', 122880], ['lz4_raw', 'v2', 2048]]) {
  await copy(table, `format parquet, compression ${codec}, parquet_version ${version}, row_group_size ${rows}`);
  compareFile(`.parquet by DuckDB, ${codec}, ${version}, ${rows} rows a group`, table);
}

// Rust's parquet crate, which gets the table from a file of DuckDB's.
await copy(inWork('kept.parquet'), 'format parquet, compression uncompressed');
const { Compression, Encoding, WriterVersion } = arrow;
for (const [codec, version, encoding, rows, pageBytes] of [['SNAPPY', 'V1', null, 1 << 20, 1 << 20], ['ZSTD', 'V2', 'DELTA_BYTE_ARRAY', 100, 1 << 16],
  ['GZIP', 'V2', 'DELTA_LENGTH_BYTE_ARRAY', 1000, 1 << 12], ['BROTLI', 'V1', 'PLAIN', 500, 1 << 20], ['LZ4_RAW', 'V2', 'PLAIN', 1 << 20, 1 << 16],
  ['UNCOMPRESSED', 'V1', null, 333, 1 << 20]]) {
  let builder = new arrow.WriterPropertiesBuilder().setCompression(Compression[codec]).setWriterVersion(WriterVersion[version])
    .setMaxRowGroupSize(rows).setDataPageSizeLimit(pageBytes).setWriteBatchSize(64).setDictionaryEnabled(encoding === null);
  if (encoding !== null) {
    builder = builder.setColumnEncoding('text', Encoding[encoding]);
  }
  fs.writeFileSync(table, arrow.writeParquet(arrow.readParquet(fs.readFileSync(inWork('kept.parquet'))), builder.build()));
  compareFile(`.parquet by parquet-rs, ${codec}, ${version}, ${encoding ?? 'dictionary'}, ${rows} rows a group`, table);
}

// hyparquet-writer.
const compressors = {
  GZIP: (bytes) => zlib.gzipSync(bytes, { level: 1 }),
  BROTLI: (bytes) => zlib.brotliCompressSync(bytes, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 3 } }),
};
for (const [codec, encoding] of [['SNAPPY', undefined], ['UNCOMPRESSED', 'PLAIN'], ['GZIP', 'DELTA_LENGTH_BYTE_ARRAY'], ['BROTLI', 'DELTA_BYTE_ARRAY']]) {
  const columnData = [{ name: 'row', data: texts.map((text, row) => row), type: 'INT32' }, { name: 'text', data: texts, type: 'STRING', encoding }];
  hyparquet.parquetWriteFile({ filename: table, columnData, codec, ...(codec in compressors ? { compressors } : {}) });
  compareFile(`.parquet by hyparquet-writer, ${codec}, ${encoding ?? 'its choice of encoding'}`, table);
}
console.log(`${failures ? `${failures} forms differ` : 'all forms give the same tokens'}`);
process.exit(failures ? 1 : 0);
