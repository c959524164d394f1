// Checks objects of the Prometheus operator against the types of an npm package.
//
//     operator.mjs FOLDER < objects.json
//
// FOLDER is where npm installed the package. Prints a JSON list: for each object a text that says
// what is wrong, "" if nothing. The package's validators check types and patterns and let unknown
// keys pass; these are looked up in its declarations, since an API server would refuse them.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const PACKAGE = "@kubernetes-models/prometheus-operator";
const VERSION = "monitoring.coreos.com/v1";
const root = join(process.argv[2], "node_modules", PACKAGE);
const kinds = await import(pathToFileURL(join(root, VERSION, "index.js")));

/** The keys of a class, with the file that declares what is below. Null where it is no class. */
const known = new Map();
function keysOf(file) {
  if (known.has(file)) return known.get(file);
  const text = readFileSync(file, "utf8").replaceAll(/\/\*\*[\s\S]*?\*\//g, "");
  const body = text.match(/declare class \w+ extends Model<[^{]*\{([\s\S]*?)\n\}/)?.[1];
  const places = new Map();
  for (const [, name, from] of text.matchAll(/import \{ (\w+) \} from "([^"]+)"/g)) {
    places.set(name, from);
  }
  let keys = null;
  if (body) {
    keys = {};
    for (const [, key, type] of body.matchAll(/^ {4}"([^"]+)"\??: (.*)$/gm)) {
      const name = type.match(/\b(I\w+)\b/)?.[1];
      keys[key] = { file: name && resolve(places.get(name), file) };
    }
  }
  known.set(file, keys);
  return keys;
}

function resolve(from, file) {
  if (!from) return null;
  if (from.startsWith(".")) return join(dirname(file), from.replace(/\.js$/, ".d.ts"));
  // Kubernetes' own types are checked where they are Kubernetes' own objects.
  return null;
}

function unknown(value, file, path, found) {
  if (Array.isArray(value)) {
    value.forEach((item, index) => unknown(item, file, `${path}[${index}]`, found));
  } else if (value && typeof value === "object") {
    const keys = keysOf(file);
    if (!keys) return;
    for (const [key, below] of Object.entries(value)) {
      if (!keys[key]) found.push(`${path}.${key} is unknown`);
      else if (keys[key].file) unknown(below, keys[key].file, `${path}.${key}`, found);
    }
  }
}

function problems(object) {
  const Kind = kinds[object.kind];
  if (!Kind || object.apiVersion !== VERSION) return `no kind ${object.apiVersion} ${object.kind}`;
  const found = [];
  try {
    new Kind(object).validate();
  } catch (error) {
    found.push(error.message);
  }
  unknown(object, join(root, VERSION, `${object.kind}.d.ts`), object.kind, found);
  return found.join("; ");
}

const objects = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(objects.map(problems)));
