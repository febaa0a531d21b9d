// Server-sent events with reconnects, and polling that pauses in hidden tabs.

import { get, setConnected } from "./api.js";

const MAX_DELAY_MS = 15_000;

/**
 * Listen to a stream of events: `handlers` maps event names to functions that get the parsed data.
 * `path` may be a function, which is called for every connection.
 * After an error it reconnects with a growing pause. Returns a function that stops it.
 * `onopen` runs at every connection, so that a page can load what it missed.
 */
export function listen(path, handlers, onopen) {
  let source, timer, delay = 500, isClosed = false;

  function connect() {
    source = new EventSource(typeof path === "function" ? path() : path);
    source.addEventListener("open", () => {
      delay = 500;
      setConnected(true);
      onopen?.();
    });
    source.addEventListener("error", () => {
      setConnected(false);
      source.close();
      clearTimeout(timer);
      if (isClosed) return;
      timer = setTimeout(connect, delay);
      // A session that has ended leads to the login.
      get("/api/session").catch(() => {});
      delay = Math.min(delay * 2, MAX_DELAY_MS);
    });
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handle(JSON.parse(event.data), event));
    }
  }

  function disconnect() {
    clearTimeout(timer);
    source?.close();
  }

  // Browsers open at most six connections to a gateway, so a hidden tab gives its own back.
  const onVisibility = () => {
    disconnect();
    if (!document.hidden) connect();
  };

  function close() {
    isClosed = true;
    disconnect();
    document.removeEventListener("visibilitychange", onVisibility);
  }

  connect();
  document.addEventListener("visibilitychange", onVisibility);
  addEventListener("pagehide", close, { once: true });
  return close;
}

/** Call an async function now and after every interval while the page is visible. Returns a function that stops it. */
export function poll(load, milliseconds) {
  let timer, isStopped = false;

  async function tick() {
    clearTimeout(timer);
    if (!document.hidden) await load().catch(() => {});
    if (!isStopped) timer = setTimeout(tick, milliseconds);
  }

  const onVisible = () => !document.hidden && !isStopped && tick();
  document.addEventListener("visibilitychange", onVisible);
  tick();
  return () => {
    isStopped = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", onVisible);
  };
}
