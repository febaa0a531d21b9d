// Requests to /api, and how their errors are shown.

import { find, h } from "./dom.js";

const csrfToken = find('meta[name="csrf-token"]')?.content ?? "";

/** An error reply of the API; its message is for the user, and `content` is the parsed JSON. */
export class ApiError extends Error {
  constructor(message, status, content = null) {
    super(message);
    this.status = status;
    this.content = content;
  }
}

/** Send a request and return the parsed JSON. Throws ApiError. */
export async function request(method, path, { body, query, signal } = {}) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === undefined || value === null || value === "" || value === false) continue;
    for (const each of [value].flat()) url.searchParams.append(name, String(each));
  }
  const headers = { accept: "application/json" };
  if (method !== "GET") headers["x-csrf-token"] = csrfToken;
  if (body !== undefined) headers["content-type"] = "application/json";
  let reply;
  try {
    reply = await fetch(url, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    setConnected(false);
    throw new ApiError("The gateway does not answer. It may have stopped, or the network is down.", 0);
  }
  setConnected(true);
  const content = await reply.json().catch(() => null);
  if (reply.ok) return content;
  if (reply.status === 401 && document.body.dataset.page) {
    location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  }
  const error = content?.error;
  throw new ApiError(error?.message ?? error ?? `The gateway answered with status ${reply.status}.`, reply.status, content);
}

export const get = (path, query, signal) => request("GET", path, { query, signal });
export const post = (path, body = {}) => request("POST", path, { body });
export const put = (path, body = {}) => request("PUT", path, { body });
export const remove = (path, body) => request("DELETE", path, { body });

/** Show whether the gateway can be reached, at the foot of the navigation. */
export function setConnected(isConnected) {
  const status = find("[data-connection]");
  if (!status || (status.dataset.connection === "lost") === !isConnected) return;
  status.dataset.connection = isConnected ? "" : "lost";
  find("[data-connection-text]", status).textContent = isConnected ? "Connected" : "Connection lost";
  document.body.classList.toggle("is-stale", !isConnected);
}

/** Show that the gateway answers but cannot do everything, or with "" that all is well. */
export function setLimited(text, detail = "") {
  const status = find("[data-connection]");
  const banner = find("[data-banner]");
  if (!status || !banner || status.dataset.connection === "lost") return;
  status.dataset.connection = text ? "limited" : "";
  find("[data-connection-text]", status).textContent = text || "Connected";
  banner.hidden = !text;
  banner.textContent = detail;
}

/** Show a message for some seconds: toast("Saved") or toast(error). */
export function toast(message, kind = message instanceof Error ? "error" : "ok") {
  const text = message instanceof Error ? message.message : message;
  const box = h("div.toast", { dataset: { kind }, role: kind === "error" ? "alert" : "status" }, text);
  box.append(h("button.icon-button", { type: "button", "aria-label": "Close", onclick: () => box.remove() }, "×"));
  find("[data-toasts]")?.append(box);
  setTimeout(() => box.remove(), kind === "error" ? 12_000 : 4_000);
}

/** Run an async action of a button: disable it meanwhile, and show an error. Returns the result or undefined. */
export async function runAction(button, action) {
  button?.setAttribute("aria-busy", "true");
  if (button) button.disabled = true;
  try {
    return await action();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    if (!(error instanceof ApiError)) console.error(error);
    toast(error);
    return undefined;
  } finally {
    button?.removeAttribute("aria-busy");
    if (button) button.disabled = false;
  }
}
