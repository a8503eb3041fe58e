// Compares ./tokenize with HuggingFace's tokenizers library, id by id, on made-up text of many kinds and on the files given.
//
//   npm install --prefix DIR @anush008/tokenizers
//   node scripts/compare_tokenizer.mjs --package DIR --tokenizer tokenizer.json [--tokenize ./tokenize] [--seed N] [--bytes N] [FILES...]
//
// --bytes limits what is taken from each file and made of each kind (4,000,000 and a tenth of it). Prints one line a text; exit 1 if any differs.
import fs from 'fs';
import path from 'path';
import { spawnSync } from 'child_process';
import { createRequire } from 'module';

const options = { package: null, tokenizer: null, tokenize: './tokenize', seed: '1', bytes: '4000000' };
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
  console.error('usage: node scripts/compare_tokenizer.mjs --package DIR --tokenizer tokenizer.json [FILES...]');
  process.exit(2);
}
const require = createRequire(path.resolve(options.package, 'package.json'));
const { Tokenizer } = require('@anush008/tokenizers');

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

const reference = await Tokenizer.fromString(fs.readFileSync(options.tokenizer, 'utf8'));
let failures = 0;

async function compare(name, text) {
  const input = Buffer.from(text, 'utf8');
  const expected = (await reference.encode(input.toString('utf8'), null, { addSpecialTokens: false })).getIds();
  const run = spawnSync(options.tokenize, ['--tokenizer', options.tokenizer], { input, maxBuffer: 1 << 30 });
  if (run.status !== 0) {
    console.log(`FAILED  ${name}: ${run.stderr ?? run.error}`);
    failures++;
    return;
  }
  const actual = run.stdout.length ? run.stdout.toString('latin1').trimEnd().split('\n') : [];
  let i = 0;
  while (i < expected.length && i < actual.length && expected[i] === Number(actual[i])) {
    i++;
  }
  const same = i === expected.length && i === actual.length;
  const back = spawnSync(options.tokenize, ['--tokenizer', options.tokenizer, '--decode'], { input: run.stdout, maxBuffer: 1 << 30 });
  const exact = back.status === 0 && back.stdout.equals(input);
  failures += same && exact ? 0 : 1;
  console.log(`${same && exact ? 'ok    ' : 'FAILED'}  ${name}: ${input.length} bytes, ${actual.length} ids`
    + (same ? '' : `, expected ${expected.length}; first difference at id ${i}: ${actual[i]} for ${expected[i]}`) + (exact ? '' : ', not decoded exactly'));
}

const bytes = Number(options.bytes);
for (const kind of Object.keys(kinds)) {
  await compare(kind, made(kind, bytes / 10));
}
for (const file of files) {
  await compare(file, fileText(file, bytes));
}
process.exit(failures ? 1 : 0);
