// Requests to the server. Each one is a command of `ledger`; the answer is the JSON document of that command.

/** An error message of a command. */
export class Refused extends Error {}

/** Requests a command. Returns its document, the same command for a terminal, and its notes. */
export async function ask(command, options = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options)) {
    if (value != null && value !== '') query.set(name, value);
  }
  const response = await fetch(`/api/${command}?${query}`, { signal });
  if (response.status === 401) throw Object.assign(new Refused(await response.text()), { isEnd: true });
  const document = await response.json();
  const failure = document.error;
  if (failure) throw new Refused([failure.message, ...(failure.causes ?? [])].join('\n'));
  const header = (name) => decodeURIComponent(response.headers.get(name) ?? '');
  return { document, command: header('x-ledger-command'), notes: header('x-ledger-notes') };
}

let names;

/** Models, metrics, fields and tags of the ledger. They are requested once. */
export function allNames() {
  names ??= ask('names').then((answer) => answer.document);
  return names;
}

/** Requests the names again at their next use, because the ledger has new attempts. */
export function forgetNames() {
  names = undefined;
}
