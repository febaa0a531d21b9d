// Apply the stored theme before the first paint. Loaded as a blocking script.
try {
  const theme = localStorage.getItem("toolcrib-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is disabled; the system's theme applies.
}
