// The address of what is shown: everything that a person chose is in it, so that a link restores the page.

/** A part of an address as text. A malformed escape stays as it is. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** `#/run/ID?x=1` as a page's name, what follows it, and options. */
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
