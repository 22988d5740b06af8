// Writes src/api.ts from the server's description of its API, api/openapi.yaml.
//
//   node tools/api-types.mjs           # writes it
//   node tools/api-types.mjs --check   # says whether it is out of date, and fails if it is
import { readFileSync, writeFileSync } from "node:fs";
import { parse } from "yaml";

const source = new URL("../../../api/openapi.yaml", import.meta.url);
const target = new URL("../src/api.ts", import.meta.url);
const { schemas } = parse(readFileSync(source, "utf8"), { merge: true, maxAliasCount: -1 }).components;

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.oneOf) return schema.oneOf.map(typeOf).join(" | ");
  switch (schema.type) {
    case "array": {
      const item = typeOf(schema.items);
      return item.includes(" ") ? `(${item})[]` : `${item}[]`;
    }
    case "object":
      if (schema.properties) return `{ ${Object.entries(schema.properties).map(([field, of]) => `${field}${schema.required?.includes(field) ? "" : "?"}: ${typeOf(of)}`).join("; ")} }`;
      return `Record<string, ${typeOf(schema.additionalProperties ?? {})}>`;
    case "integer":
      return "number";
    case "string":
    case "number":
    case "boolean":
      return schema.type;
  }
  return "unknown";
}

function doc({ description, format }, indent = "") {
  const words = [description, format === "date-time" ? "In RFC 3339." : ""].filter(Boolean).join(" ").trim();
  return words === "" ? "" : `${indent}/** ${words.replaceAll("\n", " ")} */\n`;
}

function declaration([name, schema]) {
  if (!schema.properties) return `${doc(schema)}export type ${name} = ${typeOf(schema)};\n`;
  const fields = Object.entries(schema.properties).map(([field, of]) => {
    const optional = schema.required?.includes(field) ? "" : "?";
    return `${doc(of, "  ")}  ${field}${optional}: ${typeOf(of)};\n`;
  });
  return `${doc(schema)}export interface ${name} {\n${fields.join("")}}\n`;
}

const written = `// Written by tools/api-types.mjs from api/openapi.yaml: change that, then run the tool.

/** What travels over the API, in its own names. */

${Object.entries(schemas).map(declaration).join("\n")}`;

if (process.argv.includes("--check")) {
  if (readFileSync(target, "utf8") !== written) {
    console.error("src/api.ts is out of date: run node tools/api-types.mjs");
    process.exit(1);
  }
} else {
  writeFileSync(target, written);
}
