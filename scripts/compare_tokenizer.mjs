// Compares ./tokenize with independent encoders, id by id, on made-up text of many kinds and on the files given: HuggingFace's tokenizers
// library for a tokenizer.json, tiktoken for a rank file (which then needs --encoding: cl100k_base, o200k_base, gpt2, ...).
//
//   npm install --prefix DIR @anush008/tokenizers tiktoken
//   node scripts/compare_tokenizer.mjs --package DIR --tokenizer FILE [--encoding NAME] [--tokenize ./tokenize] [--seed N] [--bytes N] [FILES...]
//
// --bytes limits what is taken from each file and made of each kind (4,000,000 and a tenth of it). Prints one line a text; exit 1 if any differs.
// A tokenizer in another form than tokenizer.json is compared once more as the tokenizer.json that ./tokenize --out makes of it.
import fs from 'fs';
import path from 'path';
import { spawnSync } from 'child_process';
import { createRequire } from 'module';

const options = { package: null, tokenizer: null, tokenize: './tokenize', encoding: null, seed: '1', bytes: '4000000' };
const files = [];
for (let i = 2; i < process.argv.length; i++) {
  const name = process.argv[i].replace(/^--/, '');
  if (!process.argv[i].startsWith('--')) {
    files.push(process.argv[i]);
  } else if (name in options && i + 1 < process.argv.length) {
    options[name] = process.argv[++i];
  } else {
    console.error(`error: unknown flag ${process.argv[i]}, or one without a value`);
    process.exit(2);
  }
}
if (!options.package || !options.tokenizer) {
  console.error('usage: node scripts/compare_tokenizer.mjs --package DIR --tokenizer FILE [--encoding NAME] [FILES...]');
  process.exit(2);
}
const require = createRequire(path.resolve(options.package, 'package.json'));

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

// Returns { encode(text) → ids, decode(ids) → text }.
async function makeReference() {
  if (!options.encoding) {
    const { Tokenizer } = require('@anush008/tokenizers');
    const t = await Tokenizer.fromString(fs.readFileSync(options.tokenizer, 'utf8'));
    return {
      encode: async (text) => (await t.encode(text, null, { addSpecialTokens: false })).getIds(),
      decode: (ids) => t.decode(Array.from(ids), false),
    };
  }
  const { Tiktoken } = require('tiktoken');
  const known = JSON.parse(fs.readFileSync(require.resolve(`tiktoken/encoders/${options.encoding}.json`), 'utf8'));
  const lines = fs.readFileSync(options.tokenizer, 'utf8').split('\n').filter((line) => line !== '');
  const ranks = lines.map((line) => line.trim().split(' ')).map(([token, rank]) => `! ${rank} ${token}`).join('\n');
  const t = new Tiktoken(ranks, known.special_tokens, known.pat_str);
  const utf8 = new TextDecoder();
  return { encode: async (text) => t.encode(text, 'all'), decode: async (ids) => utf8.decode(t.decode(ids)) };
}
const reference = await makeReference();
let failures = 0;

function ours(tokenizer, flags, input) {
  const run = spawnSync(options.tokenize, ['--tokenizer', tokenizer, ...flags], { input, maxBuffer: 1 << 30 });
  if (run.status !== 0) {
    throw new Error(`${options.tokenize}: ${run.stderr ?? run.error}`);
  }
  return run.stdout;
}

async function compare(name, text, tokenizer) {
  const input = Buffer.from(text, 'utf8');
  const expected = await reference.encode(input.toString('utf8'));
  const printed = ours(tokenizer, [], input);
  const actual = printed.length ? printed.toString('latin1').trimEnd().split('\n') : [];
  let i = 0;
  while (i < expected.length && i < actual.length && expected[i] === Number(actual[i])) {
    i++;
  }
  const same = i === expected.length && i === actual.length;
  const decoded = ours(tokenizer, ['--decode'], printed);
  // Normalising tokenizers do not give the text back; then the reference's decoding decides.
  const exact = decoded.equals(input) || decoded.equals(Buffer.from(await reference.decode(expected), 'utf8'));
  failures += same && exact ? 0 : 1;
  console.log(`${same && exact ? 'ok    ' : 'FAILED'}  ${name}: ${input.length} bytes, ${actual.length} ids`
    + (same ? '' : `, expected ${expected.length}; first difference at id ${i}: ${actual[i]} for ${expected[i]}`) + (exact ? '' : ', not decoded exactly'));
}

const bytes = Number(options.bytes);
const texts = [...Object.keys(kinds).map((kind) => [kind, made(kind, bytes / 10)]), ...files.map((file) => [file, fileText(file, bytes)])];
for (const [name, text] of texts) {
  await compare(name, text, options.tokenizer);
}
if (options.encoding) {
  const folder = fs.mkdtempSync(path.join(process.env.TMPDIR ?? '/tmp', 'compare-'));
  const converted = path.join(folder, 'tokenizer.json');
  ours(options.tokenizer, ['--out', converted], '');
  const { Tokenizer } = require('@anush008/tokenizers');
  const t = await Tokenizer.fromString(fs.readFileSync(converted, 'utf8'));
  const library = { encode: async (text) => (await t.encode(text, null, { addSpecialTokens: false })).getIds() };
  for (const [name, text] of texts) {
    const expected = await reference.encode(text), actual = await library.encode(text);
    const same = expected.length === actual.length && expected.every((id, i) => id === actual[i]);
    failures += same ? 0 : 1;
    console.log(`${same ? 'ok    ' : 'FAILED'}  ${name}: the converted file in HuggingFace's library`);
  }
  fs.rmSync(folder, { recursive: true });
}
process.exit(failures ? 1 : 0);
