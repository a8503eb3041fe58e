// Compares ./tokenize with independent encoders, id by id, on made-up text of many kinds and on the files given: HuggingFace's tokenizers
// library for a tokenizer.json, tiktoken for a rank file (which then needs --encoding: cl100k_base, o200k_base, gpt2, ...).
//
//   npm install --prefix DIR @anush008/tokenizers tiktoken
//   node scripts/compare_tokenizer.mjs --package DIR --tokenizer FILE [--encoding NAME] [--tokenize ./tokenize] [--seed N] [--bytes N] [FILES...]
//   node scripts/compare_tokenizer.mjs --package DIR --all FOLDER [...the same]
//
// --bytes limits what is taken from each file and made of each kind (4,000,000 and a tenth of it). Prints one line a text; exit 1 if any differs.
// A tokenizer in another form than tokenizer.json is compared once more as the tokenizer.json that ./tokenize --out makes of it.
//
// --all takes every tokenizer below a folder (*tokenizer.json, *.tiktoken, vocab.json or encoder.json with its merges) and tiktoken's own
// encodings, each on the same 10 MB: 4 MB of the files given, 1 MB of this project's code, the rest of all kinds. Prints one line a tokenizer.
import fs from 'fs';
import path from 'path';
import { fileURLToPath } from 'url';
import { fail, importPackages, readFlags, resolveIn, run, temporaryFolder } from './compare.mjs';

const usage = 'usage: node scripts/compare_tokenizer.mjs --package DIR (--tokenizer FILE [--encoding NAME] | --all FOLDER) [FILES...]';
const { options, files } = readFlags(usage, { package: null, tokenizer: null, all: null, tokenize: './tokenize', encoding: null, seed: '1', bytes: '4000000' });
const [huggingFace, tiktoken] = await importPackages(options.package, ['@anush008/tokenizers', 'tiktoken']);
if (!options.tokenizer === !options.all) {
  fail(usage, 2);
}

let state = Number(options.seed) >>> 0;
function random(n) {   // mulberry32: uniform in 0 … n − 1
  state = (state + 0x6D2B79F5) >>> 0;
  let t = state;
  t = Math.imul(t ^ (t >>> 15), t | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return Math.floor(((t ^ (t >>> 14)) >>> 0) / 4294967296 * n);
}
const pick = (list) => list[random(list.length)];
const char = (first, last) => String.fromCodePoint(first + random(last - first + 1));

function anyCharacter() {
  const code = random(4) ? random(0x3400) : random(0x110000);
  return code >= 0xD800 && code < 0xE000 ? 'x' : String.fromCodePoint(code);
}
const spaces = [' ', ' ', ' ', '\n', '\n', '\t', '\r', '\v', '\f', '\u0085', '\u00a0', '\u1680', '\u180e', '\u2003', '\u200b', '\u2028', '\u2029',
  '\u202f', '\u205f', '\u3000', '\ufeff', '\x1c', '\x1d', '\x1e', '\x1f', '\0'];
const words = ["it's", "I'LL", "we're", "don't", "they'd", "I'm", "'ve", "'", "''s", "'\u017f", 'The', 'naive', 'na\u00efve', 'e\u0301', '3.14', '1,000',
  '\u00bd', '\u0664\u0662', '\u4e2d\u6587', '\u041f\u0440\u0438\u0432\u0435\u0442', '\u0939\u093f\u0928\u094d\u0926\u0940', '$', '--', '\u2014', '\u201cx\u201d', '#!'];
const emoji = ['\u{1F600}', '\u{1F468}\u200d\u{1F469}\u200d\u{1F467}', '\u{1F44D}\u{1F3FD}', '\u2764\ufe0f', '\u{1F1E9}\u{1F1EA}', '1\ufe0f\u20e3', '\u{1FAE8}', ' ', 'a', '1'];
const special = ['<|endoftext|>', '<|endoftext|', '<|', '|>', '<', 'endoftext', ' ', '\n', 'a', '<|endoftext|><|endoftext|>', '<|<|endoftext|>'];
const kinds = {
  'random characters': anyCharacter,
  'random characters and ASCII': () => (random(3) ? char(32, 126) : anyCharacter()),
  'ASCII with control characters': () => char(0, 127),
  'white space': () => pick(spaces),
  'white space and words': () => (random(3) ? pick(spaces) : pick(words)),
  'words without spaces': () => pick(words),
  'emoji': () => pick(emoji),
  'special tokens': () => pick(special),
  'one letter': () => 'a',
  'scripts': () => {
    const first = pick([0x41, 0xc0, 0x370, 0x400, 0x5d0, 0x620, 0x905, 0xe01, 0x1100, 0x1e00, 0x3041, 0x30a1, 0x4e00, 0x4e00, 0xac00, 0x1f300]);
    return Array.from({ length: 1 + random(12) }, () => char(first, first + 60)).join('') + pick([' ', ' ', '', '\u3002', ', ', '\n', '1']);
  },
  'combining marks': () => pick(['a', 'E', ' ', '\u05d0', '\u0915', '\uac00', '\u1100\u1161', 'o']) + char(0x300, 0x36f).repeat(random(3)) + anyCharacter(),
  'random bytes made valid': () => Buffer.from(Array.from({ length: 64 }, () => random(256))).toString('utf8'),
  'long runs': () => pick(['a', ' ', '\n', '=', '\u4e2d', '9']).repeat(random(3000)),
};

function made(kind, bytes) {
  const parts = [];
  for (let n = 0; n < bytes;) {
    const part = kinds[kind]();
    parts.push(part);
    n += Buffer.byteLength(part);
  }
  return parts.join('');
}

function fileText(file, bytes) {
  const handle = fs.openSync(file, 'r');
  const buffer = Buffer.alloc(Math.min(bytes, fs.fstatSync(handle).size));
  fs.readSync(handle, buffer, 0, buffer.length, 0);
  fs.closeSync(handle);
  return buffer.toString('utf8');
}

// References: { name, encode(text) → ids, decode(ids) → text }.

async function huggingFaceReference(file) {
  const t = await (huggingFace.Tokenizer ?? huggingFace.default.Tokenizer).fromString(fs.readFileSync(file, 'utf8'));
  return {
    name: "HuggingFace's library",
    encode: async (text) => (await t.encode(text, null, { addSpecialTokens: false })).getIds(),
    decode: (ids) => t.decode(Array.from(ids), false),
  };
}

const encodingNames = ['gpt2', 'r50k_base', 'p50k_base', 'p50k_edit', 'cl100k_base', 'o200k_base'];
const readEncoding = (name) => JSON.parse(fs.readFileSync(resolveIn(options.package, `tiktoken/encoders/${name}.json`), 'utf8'));
const rankLines = (file) => fs.readFileSync(file, 'utf8').split('\n').filter((line) => line !== '').map((line) => line.trim().split(' '));

// A rank file read with the pattern, and the special tokens, of an encoding that the package knows.
function tiktokenReference(file, encoding) {
  const { pat_str: pattern, special_tokens: specials } = readEncoding(encoding), lines = rankLines(file);
  // Special tokens that have a rank stand in the file.
  const own = lines.map(([token, rank]) => [Buffer.from(token, 'base64').toString('latin1'), Number(rank)]).filter(([token]) => /^<\|.*\|>$/.test(token));
  const { Tiktoken } = tiktoken.Tiktoken ? tiktoken : tiktoken.default;
  const t = new Tiktoken(lines.map(([token, rank]) => `! ${rank} ${token}`).join('\n'), own.length ? Object.fromEntries(own) : specials, pattern);
  const utf8 = new TextDecoder();
  // Its time is quadratic in the length of a pre-token.
  return { name: `tiktoken, ${encoding}`, longest: 20000, encode: async (text) => t.encode(text, 'all'), decode: async (ids) => utf8.decode(t.decode(ids)), free: () => t.free() };
}

const fitting = (reference, kind, text) => (kind === 'one letter' ? text.slice(0, reference.longest) : text);
const ours = (tokenizer, flags, input) => run(options.tokenize, ['--tokenizer', tokenizer, ...flags], input).out;

// Returns { same, bytes, ids, problem } of one text.
async function compare(reference, text, { file, flags = [] }) {
  const input = Buffer.from(text, 'utf8');
  const expected = await reference.encode(input.toString('utf8'));
  const printed = ours(file, flags, input);
  const actual = printed.length ? printed.toString('latin1').trimEnd().split('\n') : [];
  let i = 0;
  while (i < expected.length && i < actual.length && expected[i] === Number(actual[i])) {
    i++;
  }
  const same = i === expected.length && i === actual.length;
  const decoded = ours(file, [...flags, '--decode'], printed);
  // Normalising tokenizers do not give the text back; then the reference's decoding decides.
  const exact = decoded.equals(input) || decoded.equals(Buffer.from(await reference.decode(expected), 'utf8'));
  const problem = (same ? '' : `, expected ${expected.length}; first difference at id ${i}: ${actual[i]} for ${expected[i]}`) + (exact ? '' : ', not decoded exactly');
  return { same: same && exact, bytes: input.length, ids: actual.length, problem };
}

let failures = 0;
function report(same, line) {
  failures += same ? 0 : 1;
  console.log(`${same ? 'ok    ' : 'FAILED'}  ${line}`);
}

// ---- one tokenizer, one line a text ----

async function compareOne() {
  const bytes = Number(options.bytes), folder = temporaryFolder();
  const texts = [...Object.keys(kinds).map((kind) => [kind, made(kind, bytes / 10)]), ...files.map((file) => [file, fileText(file, bytes)])];
  const reference = options.encoding ? tiktokenReference(options.tokenizer, options.encoding) : await huggingFaceReference(options.tokenizer);
  for (const [name, text] of texts) {
    const result = await compare(reference, fitting(reference, name, text), { file: options.tokenizer });
    report(result.same, `${name}: ${result.bytes} bytes, ${result.ids} ids${result.problem}`);
  }
  if (options.encoding) {
    const converted = path.join(folder, 'tokenizer.json');
    ours(options.tokenizer, ['--out', converted], '');
    const library = await huggingFaceReference(converted);
    for (const [name, whole] of texts) {
      const text = fitting(reference, name, whole);
      const expected = await reference.encode(text), actual = await library.encode(text);
      report(expected.length === actual.length && expected.every((id, i) => id === actual[i]), `${name}: the converted file in HuggingFace's library`);
    }
  }
}

// ---- all tokenizers, one line each ----

const TEXT_BYTES = 1e7;

function mixedTexts() {
  const texts = files.map((file) => [file, fileText(file, 4e6 / files.length)]);
  const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
  const sources = ['base', 'data', 'tokenizer', 'scripts'].flatMap((folder) => fs.readdirSync(path.join(root, folder)).sort().map((name) => path.join(root, folder, name)));
  texts.push(['code', sources.map((file) => fs.readFileSync(file, 'utf8')).join('').slice(0, 1e6)]);
  const rest = TEXT_BYTES - texts.reduce((sum, [, text]) => sum + Buffer.byteLength(text), 0);
  return [...texts, ...Object.keys(kinds).map((kind) => [kind, made(kind, rest / Object.keys(kinds).length)])];
}

function* filesBelow(folder) {
  for (const entry of fs.readdirSync(folder, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) {
      yield* filesBelow(file);
    } else {
      yield file;
    }
  }
}

// { name, file, flags, reference() } of everything there is to compare.
function allTokenizers() {
  const folder = temporaryFolder(), list = [];
  for (const file of filesBelow(options.all)) {
    const name = path.relative(options.all, file);
    if (file.endsWith('tokenizer.json')) {
      list.push({ name, file, reference: () => huggingFaceReference(file) });
    } else if (file.endsWith('.tiktoken')) {
      const count = rankLines(file).length;
      const encoding = encodingNames.find((known) => rankCount(known) === count) ?? 'gpt2';
      list.push({ name, file, reference: async () => tiktokenReference(file, encoding) });
    } else if (/^(vocab|encoder)\.json$/.test(path.basename(file))) {
      const json = path.join(path.dirname(file), 'tokenizer.json'), given = fs.existsSync(json);
      const converted = path.join(folder, `${list.length}.json`);
      list.push({ name: `${name} and its merges`, file, reference: () => {
        if (!given) {
          ours(file, ['--out', converted], '');
        }
        return huggingFaceReference(given ? json : converted);
      } });
    }
  }
  for (const encoding of encodingNames) {
    const file = path.join(folder, `${encoding}.tiktoken`);
    fs.writeFileSync(file, ranksOf(encoding));
    // Its ranks are those of p50k_base; only the name tells.
    list.push({ name: `tiktoken's ${encoding}`, file, flags: encoding === 'p50k_edit' ? ['--pattern', encoding] : [], reference: async () => tiktokenReference(file, encoding) });
  }
  return list;
}

// The package keeps ranks as lines "! FIRST TOKEN TOKEN ...".
function ranksOf(encoding) {
  return readEncoding(encoding).bpe_ranks.split('\n').filter((line) => line !== '').flatMap((line) => {
    const [, first, ...tokens] = line.split(' ');
    return tokens.map((token, i) => `${token} ${Number(first) + i}\n`);
  }).join('');
}
const rankCount = (encoding) => ranksOf(encoding).split('\n').length - 1;

async function compareAll() {
  const texts = mixedTexts();
  for (const tokenizer of allTokenizers()) {
    const reference = await tokenizer.reference(), differ = [];
    let bytes = 0, ids = 0;
    for (const [name, text] of texts) {
      const result = await compare(reference, fitting(reference, name, text), tokenizer);
      bytes += result.bytes;
      ids += result.ids;
      if (!result.same) {
        differ.push(`${name}: ${result.ids} ids${result.problem}`);
      }
    }
    reference.free?.();
    report(differ.length === 0, `${tokenizer.name}: ${bytes} bytes, ${ids} ids, ${differ.length} of ${texts.length} texts differ from ${reference.name}`);
    differ.forEach((line) => console.log(`        ${line}`));
  }
}

await (options.all ? compareAll() : compareOne());
process.exit(failures ? 1 : 0);
