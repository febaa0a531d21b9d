// Log in with a key, or with the token of a one-time link in the fragment of the address.

import { get, post } from "./api.js";
import { find } from "./dom.js";

const form = find("[data-login-form]");
const error = find("[data-login-error]");

async function logIn(body) {
  error.hidden = true;
  const button = find("button", form);
  button.disabled = true;
  try {
    await post("/api/login", body);
    location.replace(readNextPath());
  } catch (fault) {
    error.textContent = `${fault.message[0].toUpperCase()}${fault.message.slice(1)}.`.replace(/\.\.$/, ".");
    error.hidden = false;
    find("#key").select();
  } finally {
    button.disabled = false;
  }
}

/** Return the page to open after the login; never one of another site. */
function readNextPath() {
  const next = new URLSearchParams(location.search).get("next") ?? "/";
  const url = new URL(next, location.origin);
  return url.origin === location.origin ? url.pathname + url.search : "/";
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  logIn({ key: find("#key").value });
});

const link = location.hash.slice(1);
if (link) {
  history.replaceState(null, "", location.pathname + location.search);
  logIn({ link });
} else {
  // A gateway without keys, or a browser that is logged in, needs no login.
  get("/api/session").then(() => location.replace(readNextPath()), () => {});
}
