#!/usr/bin/env node
// Builds what browsers get from this folder, by the packages of the lock file, in a folder of its own:
// nothing is written beside the sources.
//
//   node web/build.mjs OUT            OUT/dist: the page, its style and its bundle, as shipped in web/dist
//   node web/build.mjs OUT --tests    also OUT/tests: the programs of web/test, for Node
//   node web/build.mjs OUT --check    also checks all types
//
// scripts/setup --test installs the packages. The same sources give the same bytes, wherever OUT is.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
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
for (const name of ["client", "page", "test", "tsconfig.json"]) {
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
const dist = path.join(work, "dist");
await esbuild.build({
  ...common,
  entryPoints: { shoal: "page/main.ts" },
  outdir: dist,
  target: ["es2022"],
  minify: true,
  legalComments: "eof",
});
fs.copyFileSync(path.join(here, "page/style.css"), path.join(dist, "style.css"));
// The page names the digest of its program, so that a page kept by somebody runs no other. It carries a
// policy, so that it has one whoever serves it: its own program and style, its own server, and doors over
// TLS, or on this machine for demonstrations. Which door it is, only the server's own header can say.
const doors = ["localhost", "127.0.0.1"].flatMap((host) => [`http://${host}:*`, `ws://${host}:*`]);
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  `connect-src 'self' https: wss: ${doors.join(" ")}`,
  "img-src data:",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");
const digest = createHash("sha384").update(fs.readFileSync(path.join(dist, "shoal.js"))).digest("base64");
const html = fs.readFileSync(path.join(here, "page/index.html"), "utf8");
for (const place of ["INTEGRITY", "POLICY"]) {
  if (!html.includes(place)) throw new Error(`page/index.html has no place for ${place}`);
}
fs.writeFileSync(
  path.join(dist, "index.html"),
  html.replace("INTEGRITY", `sha384-${digest}`).replace("POLICY", policy),
);

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
