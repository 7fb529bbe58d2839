#!/usr/bin/env node
// Builds what is in this folder, by the packages of the lock file, in a folder of its own: nothing is
// written beside the sources.
//
//   node web/build.mjs OUT            OUT/gen: the messages, from src/wire/*.proto
//   node web/build.mjs OUT --tests    also OUT/tests: the programs of web/test, for Node
//   node web/build.mjs OUT --check    also checks all types
//
// scripts/setup --test installs the packages.
import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { fileURLToPath } from "node:url";

const [out, ...flags] = process.argv.slice(2);
if (!out || flags.some((flag) => !["--tests", "--check"].includes(flag))) {
  console.error("usage: node web/build.mjs OUT [--tests] [--check]");
  process.exit(2);
}
const here = path.dirname(fs.realpathSync(fileURLToPath(import.meta.url)));
const root = path.dirname(here);
const packages = path.join(root, ".deps/web/node_modules");
if (!fs.existsSync(packages)) {
  console.error(`no packages in ${packages}; run: scripts/setup --test`);
  process.exit(1);
}
const work = path.resolve(out);
fs.mkdirSync(path.join(work, "gen"), { recursive: true });
for (const name of ["client", "test", "tsconfig.json"]) {
  fs.cpSync(path.join(here, name), path.join(work, name), { recursive: true });
}
if (!fs.existsSync(path.join(work, "node_modules"))) {
  fs.symlinkSync(packages, path.join(work, "node_modules"));
}
const run = (program, ...args) => execFileSync(program, args, { cwd: work, stdio: "inherit" });

const protos = ["client", "manifest", "roster", "round"];
run(
  "protoc",
  `--plugin=protoc-gen-es=${packages}/.bin/protoc-gen-es`,
  "--es_out=gen",
  "--es_opt=target=ts,import_extension=ts",
  `--proto_path=${root}`,
  ...protos.map((name) => `src/wire/${name}.proto`),
);
if (flags.includes("--check")) run(path.join(packages, ".bin/tsc"), "-p", ".");

const esbuild = await import(path.join(packages, "esbuild/lib/main.js"));
const common = {
  absWorkingDir: work,
  bundle: true,
  format: "esm",
  logLevel: "warning",
  // Links are not followed: names in the bundle must not depend on where the packages lie.
  preserveSymlinks: true,
};
if (flags.includes("--tests")) {
  await esbuild.build({
    ...common,
    entryPoints: fs.readdirSync(path.join(work, "test")).filter((name) => name.endsWith(".ts")).map((name) => `test/${name}`),
    outdir: path.join(work, "tests"),
    outExtension: { ".js": ".mjs" },
    platform: "node",
    target: ["node18"],
    external: ["playwright-core", "axe-core"],
    // Node 18 has the Web Crypto API, and no name for it.
    banner: {
      js: 'import * as nodeCrypto from "node:crypto"; globalThis.crypto ??= nodeCrypto.webcrypto;',
    },
  });
}
