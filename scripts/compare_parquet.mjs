// Reads every column of text of every Parquet file below a folder with ./prepare and with hyparquet, and compares the texts, byte by byte.
//
//   npm install --prefix DIR hyparquet hyparquet-compressors
//   node scripts/compare_parquet.mjs --package DIR [--prepare ./prepare] FOLDERS...
//
// Names what either of the two refuses, with its reason, and prints the sums; exit 1 if texts differ, or if ./prepare refuses what hyparquet
// reads (unless the file is listed as damaged: below a folder bad_data, or with "corrupt" in its name), or ends in another way than with an error.
import fs from 'fs';
import path from 'path';
import { spawnSync } from 'child_process';
import { fail, importPackages, readFlags, temporaryFolder } from './compare.mjs';

const usage = 'usage: node scripts/compare_parquet.mjs --package DIR [--prepare ./prepare] FOLDERS...';
const { options, files: folders } = readFlags(usage, { package: null, prepare: './prepare' });
const [hyparquet, { compressors }] = await importPackages(options.package, ['hyparquet', 'hyparquet-compressors']);
if (folders.length === 0) {
  fail(usage, 2);
}

const work = temporaryFolder();
const sums = { files: 0, refused: 0, columns: 0, texts: 0, bytes: 0, alone: 0 };
let failures = 0;
function report(good, line) {
  failures += good ? 0 : 1;
  console.log(`${good ? 'ok    ' : 'FAILED'}  ${line}`);
}

// { texts } or { problem } of one column. An error is one line and exit code 1, whatever the file.
function ours(file, column) {
  const done = spawnSync(options.prepare, ['--print-documents', file, '--text-key', column], { maxBuffer: 2 ** 31 });
  const lines = done.stderr.toString().trim().split('\n');
  if (done.status === 0) {
    return { texts: done.stdout.toString().split('\n').filter((line) => line !== '').map((line) => JSON.parse(line).text) };
  }
  const proper = done.status === 1 && lines.length === 1 && lines[0].startsWith('error: ');
  return { problem: lines.at(-1), proper };
}

async function theirs(file, column) {
  try {
    const rows = await hyparquet.parquetReadObjects({ file: await hyparquet.asyncBufferFromFile(file), columns: [column], compressors });
    return { texts: rows.map((row) => row[column]).filter((text) => text !== null && text !== undefined && text !== '') };
  } catch (problem) {
    return { problem: String(problem.message ?? problem).split('\n')[0] };
  }
}

async function compareColumn(file, named, column) {
  const a = ours(named, column), b = await theirs(file, column), place = `${file}, column ${column}`;
  const damaged = /\/bad_data\/|corrupt|encrypted/.test(file);
  if (a.texts && b.texts && b.texts.every((text) => typeof text === 'string')) {
    const differs = a.texts.findIndex((text, i) => text !== b.texts[i]);
    sums.columns++;
    sums.texts += a.texts.length;
    sums.bytes += a.texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
    if (differs >= 0 || a.texts.length !== b.texts.length) {
      report(damaged, `${place}: ${a.texts.length} texts instead of ${b.texts.length}; the first that differs is number ${differs}`);
    }
  } else if (a.texts) {
    sums.alone++;
    console.log(`        ${place}: only ./prepare reads it as text (${b.problem ?? 'hyparquet makes something else of it'})`);
  } else {
    report(a.proper && (damaged || Boolean(b.problem)), `${place}: ${a.problem}`);
  }
}

async function compareFile(file) {
  let metadata, named = file;
  sums.files++;
  if (file.endsWith('.encrypted')) {   // ./prepare goes by the name
    named = path.join(work, `${sums.files}.parquet`);
    fs.symlinkSync(path.resolve(file), named);
  }
  try {
    metadata = await hyparquet.parquetMetadataAsync(await hyparquet.asyncBufferFromFile(file));
  } catch (problem) {
    const own = ours(named, 'text');
    sums.refused++;
    report(Boolean(own.proper), `${file}: ${own.problem ?? 'is read, but not by hyparquet'}`);
    return;
  }
  for (const { element, children } of hyparquet.parquetSchema(metadata).children) {
    if (element.type === 'BYTE_ARRAY' && children.length === 0 && element.repetition_type !== 'REPEATED' && element.converted_type !== 'DECIMAL') {
      await compareColumn(file, named, element.name);
    }
  }
}

for (const folder of folders) {
  for (const name of fs.readdirSync(folder, { recursive: true }).sort()) {
    if (/\.(parquet|parq)(\.encrypted)?$/.test(name)) {
      await compareFile(path.join(folder, name));
    }
  }
}
console.log(`${sums.files} files, ${sums.refused} refused by both; ${sums.columns} columns compared with ${sums.texts} texts and ${sums.bytes} bytes, `
  + `${sums.alone} read by ./prepare alone; ${failures ? `${failures} differ` : 'none differs'}`);
process.exit(failures ? 1 : 0);
