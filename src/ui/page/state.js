// The address of the page: it contains all choices of the user, so that a link restores the page.

/** Decodes a part of an address. A malformed escape is returned unchanged. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Splits `#/run/ID?x=1` into the page, the rest of the path, and the options. */
export function place() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const [page, ...rest] = path.split('/');
  return { page: page || 'runs', rest: rest.map(decoded).join('/'), options: new URLSearchParams(query ?? '') };
}

/** Changes options in place, without a step in the history. */
export function setOptions(changes) {
  const { page, rest, options } = place();
  for (const [name, value] of Object.entries(changes)) {
    if (value == null || value === '') options.delete(name);
    else options.set(name, value);
  }
  const path = [page, ...(rest ? [rest.split('/').map(encodeURIComponent).join('/')] : [])].join('/');
  const query = options.toString();
  history.replaceState(null, '', `#/${path}${query ? `?${query}` : ''}`);
}
