// What npm itself says, for readers.py: a line of JSON in, a line of JSON out.
//
//     {"pair": [a, b]}           "<", "=" or ">", or "none" if one of them is no version
//     {"name": .., "lock": ..}   {"packages": [{name, version, own}..]} of the lock file in base 64, or {"refused": why}
//
// Its argument is the folder with the packages @npmcli/arborist and semver.
const fs = require('fs');
const os = require('os');
const path = require('path');
const modules = process.argv[2];
const semver = require(path.join(modules, 'semver'));
const Arborist = require(path.join(modules, '@npmcli/arborist'));
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'npm-peer-'));
process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }));

function compared([a, b]) {
  // npm takes blanks and "=" in front, which no registry has.
  if (!semver.valid(a) || !semver.valid(b)) return 'none';
  return { '-1': '<', 0: '=', 1: '>' }[semver.compare(a, b)];
}

async function read({ name, lock }) {
  const file = path.join(folder, name);
  fs.writeFileSync(file, Buffer.from(lock, 'base64'));
  try {
    JSON.parse(fs.readFileSync(file, 'utf8').replace(/^\uFEFF/, ''));
    const tree = await new Arborist({ path: folder }).loadVirtual();
    const packages = [];
    for (const node of tree.inventory.values()) {
      packages.push({
        location: node.location, name: node.packageName || node.name, version: node.package.version || null,
        own: node.isRoot || node.isLink || !node.location.includes('node_modules'), resolved: node.resolved,
      });
    }
    return { packages };
  } catch (error) {
    return { refused: String(error.message).split('\n')[0] };
  } finally {
    fs.unlinkSync(file);
  }
}

(async () => {
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    const question = JSON.parse(line);
    console.log(JSON.stringify(question.pair ? compared(question.pair) : await read(question)));
  }
})();
