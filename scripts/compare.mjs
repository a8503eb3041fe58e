// What the scripts that compare with independent programs share: flags, node packages, running our programs.
import fs from 'fs';
import path from 'path';
import { spawnSync } from 'child_process';
import { createRequire } from 'module';
import { pathToFileURL } from 'url';

export function fail(message, code = 1) {
  console.error(`error: ${message}`);
  process.exit(code);
}

// Reads --name value pairs (--name alone where the default is false) over the defaults; what is no flag goes to `files`.
export function readFlags(usage, defaults) {
  const options = { ...defaults }, files = [];
  for (let i = 2; i < process.argv.length; i++) {
    const argument = process.argv[i], name = argument.replace(/^--/, '');
    if (argument === '--help') {
      console.log(usage);
      process.exit(0);
    } else if (!argument.startsWith('--')) {
      files.push(argument);
    } else if (options[name] === false) {
      options[name] = true;
    } else if (name in options && i + 1 < process.argv.length) {
      options[name] = process.argv[++i];
    } else {
      fail(`unknown flag ${argument}, or one without a value\n${usage}`, 2);
    }
  }
  return { options, files };
}

// Imports packages from folder/node_modules; ends the program, saying how to get them, when one is missing.
export async function importPackages(folder, names) {
  const how = `get them with: npm install --prefix ${folder ?? 'DIR'} ${names.join(' ')}`;
  if (!folder) {
    fail(`--package DIR is missing, the folder with the node packages; ${how}`, 2);
  }
  const require = createRequire(path.resolve(folder, 'package.json')), modules = [];
  for (const name of names) {
    try {
      modules.push(await import(pathToFileURL(require.resolve(name)).href));
    } catch (problem) {
      fail(`the node package ${name} cannot be loaded from ${folder} (${problem.code ?? problem.message}); ${how}`);
    }
  }
  return modules;
}

export const resolveIn = (folder, name) => createRequire(path.resolve(folder, 'package.json')).resolve(name);

// Runs a program of ours; returns { out, log }, or ends with what it said.
export function run(program, flags, input = '') {
  const done = spawnSync(program, flags, { input, maxBuffer: 1 << 30 });
  if (done.error || done.status !== 0) {
    fail(`${program} ${flags.join(' ')}: ${done.error?.message ?? done.stderr}`);
  }
  return { out: done.stdout, log: done.stderr.toString() };
}

export function temporaryFolder() {
  const folder = fs.mkdtempSync(path.join(process.env.TMPDIR ?? '/tmp', 'compare-'));
  process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }));
  process.on('SIGINT', () => process.exit(130));
  return folder;
}
