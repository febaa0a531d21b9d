// Read JSON Schemas of tools: a flat list of parameters, and a form to enter them.

import { fill, h, longText } from "./dom.js";

const MAX_DEPTH = 5;
const MAX_ROWS = 300;

/** Return a schema with its local reference resolved. */
export function resolve(schema, root) {
  let found = schema;
  for (let step = 0; step < 10 && found && typeof found.$ref === "string"; step++) {
    if (!found.$ref.startsWith("#/")) return found;
    const path = found.$ref.slice(2).split("/").map((part) => decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~"));
    const { $ref: _, ...rest } = found;
    const target = path.reduce((value, key) => value?.[key], root);
    if (!target || typeof target !== "object") return rest;
    found = { ...target, ...rest };
  }
  return found && typeof found === "object" ? found : {};
}

/** Return the type of a schema in words. */
export function describeType(schema, root, depth = 0) {
  const found = resolve(schema, root);
  if (found.const !== undefined) return JSON.stringify(found.const);
  if (Array.isArray(found.enum)) return "one of";
  const options = found.anyOf ?? found.oneOf;
  if (Array.isArray(options) && depth < 3) return [...new Set(options.map((each) => describeType(each, root, depth + 1)))].join(" or ");
  const type = Array.isArray(found.type) ? found.type.join(" or ") : found.type;
  if (type === "array" && depth < 3) return `list of ${found.items ? describeType(found.items, root, depth + 1) : "anything"}`;
  if (type === "string" && found.format) return found.format;
  return type ?? (found.properties ? "object" : "anything");
}

/** Return the parameters of a schema as rows, nested ones after their parent. */
export function listParameters(root) {
  const rows = [];
  function visit(schema, prefix, depth) {
    const found = resolve(schema, root);
    const required = new Set(Array.isArray(found.required) ? found.required : []);
    for (const [name, member] of Object.entries(found.properties ?? {})) {
      if (rows.length >= MAX_ROWS) return;
      const child = resolve(member, root);
      rows.push({ name: `${prefix}${name}`, depth, schema: child, type: describeType(member, root), required: required.has(name) });
      if (depth >= MAX_DEPTH) continue;
      if (child.properties) visit(child, `${prefix}${name}.`, depth + 1);
      else if (child.items && resolve(child.items, root).properties) visit(child.items, `${prefix}${name}[].`, depth + 1);
    }
  }
  visit(root, "", 0);
  return rows;
}

/** Return a table of the parameters of a schema. */
export function parameterTable(root) {
  const rows = listParameters(root);
  if (!rows.length) return h("p.muted", "This tool has no parameters.");
  return h(
    "div.table-scroll",
    { tabindex: "0", role: "region", "aria-label": "Parameters" },
    h(
      "table.parameters",
      h("thead", h("tr", h("th", "Parameter"), h("th", "Type"), h("th", "Description"))),
      h(
        "tbody",
        rows.map((row) =>
          h(
            "tr",
            h("td", h("span.mono", { class: `depth-${Math.min(row.depth, 3)}` }, row.name), row.required ? h("span.badge.required", { dataset: { kind: "accent" } }, "required") : null),
            h("td", row.type, row.schema.enum ? h("div.enum", row.schema.enum.slice(0, 30).map((value) => h("code", typeof value === "string" ? value : JSON.stringify(value)))) : null),
            h("td", longText(row.schema.description ?? "", 400), describeLimits(row.schema)),
          ),
        ),
      ),
    ),
  );
}

function describeLimits(schema) {
  const parts = [];
  if (schema.default !== undefined) parts.push(`default ${JSON.stringify(schema.default)}`);
  if (schema.minimum !== undefined) parts.push(`at least ${schema.minimum}`);
  if (schema.maximum !== undefined) parts.push(`at most ${schema.maximum}`);
  if (schema.maxLength !== undefined) parts.push(`up to ${schema.maxLength} characters`);
  if (schema.pattern) parts.push(`matches ${schema.pattern}`);
  return parts.length ? h("div.muted", parts.join(", ").slice(0, 300)) : null;
}

/** Return the one schema besides null in a union such as "string or null", or the schema itself. */
function unwrapOptional(schema, root) {
  const found = resolve(schema, root);
  const options = (found.anyOf ?? found.oneOf)?.map?.((each) => resolve(each, root)).filter((each) => each.type !== "null");
  if (options?.length !== 1) return found;
  const { anyOf: _, oneOf: __, ...rest } = found;
  return { ...options[0], ...rest };
}

/** Build a form from a schema. Returns its element and `read()`, which returns the arguments or throws an Error. */
export function buildForm(root) {
  const found = resolve(root, root);
  const required = new Set(Array.isArray(found.required) ? found.required : []);
  const names = Object.keys(found.properties ?? {}).slice(0, MAX_ROWS);
  const inputs = names.map((name, index) => buildInput(name, found.properties[name], root, required.has(name), index));
  const json = h("textarea", { "aria-label": "Arguments as JSON", rows: "8", spellcheck: "false" });
  const fields = h("div.stack", inputs.length ? inputs.map((input) => input.element) : h("p.muted", "This tool has no parameters."));
  const body = h("div", fields);
  let isJson = false;

  const readFields = () => {
    const values = {};
    for (const input of inputs) {
      const value = input.read();
      if (value !== undefined) values[input.name] = value;
      else if (input.required) throw new Error(`${input.name} is required`);
    }
    return values;
  };
  const toggle = h("button.text-button", { type: "button" }, "Edit as JSON");
  toggle.addEventListener("click", () => {
    if (isJson) {
      let values;
      try {
        values = JSON.parse(json.value || "{}");
      } catch {
        // A call shows what is wrong.
        json.focus();
        return;
      }
      for (const input of inputs) input.write(values?.[input.name]);
    } else {
      let values = {};
      try {
        values = readFields();
      } catch {
        // Incomplete fields are left out.
      }
      json.value = JSON.stringify(values, null, 2);
    }
    isJson = !isJson;
    toggle.textContent = isJson ? "Edit in fields" : "Edit as JSON";
    fill(body, isJson ? json : fields);
  });
  const read = () => {
    if (!isJson) return readFields();
    try {
      return JSON.parse(json.value || "{}");
    } catch (error) {
      throw new Error(`The arguments are not valid JSON: ${error.message}`);
    }
  };
  return { element: h("div.stack", body, h("div", toggle)), read };
}

function buildInput(name, schema, root, required, index) {
  const found = unwrapOptional(schema, root);
  const id = `argument-${index}`;
  const type = Array.isArray(found.type) ? found.type.find((each) => each !== "null") : found.type;
  const isList = type === "array" && resolve(found.items, root).type === "string";
  const unset = found.default === undefined ? "not set" : `not set (default: ${JSON.stringify(found.default)})`.slice(0, 80);
  let input;
  let read;
  let write = (value) => (input.value = value === undefined || value === null ? "" : String(value));
  if (Array.isArray(found.enum) && found.enum.length <= 500) {
    const options = found.enum.map((value, at) => h("option", { value: String(at) }, typeof value === "string" ? value : JSON.stringify(value)));
    input = h("select", h("option", { value: "" }, required ? "choose …" : unset), options);
    read = () => (input.value === "" ? undefined : found.enum[Number(input.value)]);
    write = (value) => (input.value = found.enum.includes(value) ? String(found.enum.indexOf(value)) : "");
  } else if (type === "boolean") {
    input = h("select", h("option", { value: "" }, unset), h("option", { value: "true" }, "true"), h("option", { value: "false" }, "false"));
    read = () => (input.value === "" ? undefined : input.value === "true");
  } else if (type === "integer" || type === "number") {
    input = h("input", { type: "number", step: type === "integer" ? "1" : "any", min: found.minimum, max: found.maximum });
    read = () => (input.value === "" ? undefined : Number(input.value));
  } else if (type === "string") {
    const isLong = /body|content|markdown|message|code|html/i.test(name) && !found.format;
    input = isLong
      ? h("textarea", { rows: "3" })
      : h("input", { type: found.format === "date" ? "date" : "text", placeholder: found.format === "date-time" ? "2026-01-31T09:00:00Z" : "", spellcheck: "false" });
    read = () => (input.value === "" ? undefined : input.value);
  } else {
    input = h("textarea", { rows: "2", placeholder: isList ? "" : type === "array" ? "[ ]" : "{ }", spellcheck: "false" });
    write = (value) => (input.value = value === undefined ? "" : isList && Array.isArray(value) ? value.join("\n") : JSON.stringify(value, null, 2));
    read = () => {
      const text = input.value.trim();
      if (!text) return undefined;
      if (isList && !text.startsWith("[")) return text.split("\n").map((line) => line.trim()).filter(Boolean);
      try {
        return JSON.parse(text);
      } catch {
        throw new Error(`${name} must be valid JSON`);
      }
    };
  }
  input.id = id;
  if (found.default !== undefined && input.placeholder === "") input.placeholder = `default: ${JSON.stringify(found.default)}`.slice(0, 80);
  const hint = [describeType(schema, root), isList ? "one per line" : "", String(found.description ?? "").slice(0, 200)].filter(Boolean).join(" · ");
  input.setAttribute("aria-describedby", `${id}-hint`);
  const label = h("label", { for: id }, h("span.mono", name), required ? h("span.muted", " required") : null);
  return { name, required, read, write, element: h("div.field", label, input, h("span.hint", { id: `${id}-hint` }, hint)) };
}
