// The token of this run of the inspector: from the address, then kept for reloads of this tab.

const KEY = "app-server-inspector.token";

/** Take the token out of the address, so that it is neither shown nor bookmarked; "" without one. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", "#/threads");
  }
  return sessionStorage.getItem(KEY) ?? "";
}
