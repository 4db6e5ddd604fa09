// Questions to the server: each is a command of `ledger`, and its answer that command's JSON document.

/** What went wrong, in the words of the command. */
export class Refused extends Error {}

/** Asks a command. Gives its document, the command as it is typed, and what it said beside the answer. */
export async function ask(command, options = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options)) {
    if (value != null && value !== '') query.set(name, value);
  }
  const response = await fetch(`/api/${command}?${query}`, { signal });
  if (response.status === 401) throw new Refused(await response.text());
  const document = await response.json();
  const failure = document.error;
  if (failure) throw new Refused([failure.message, ...(failure.causes ?? [])].join('\n'));
  const header = (name) => decodeURIComponent(response.headers.get(name) ?? '');
  return { document, command: header('x-ledger-command'), notes: header('x-ledger-notes') };
}

let names;

/** Models, metrics, fields and tags of the ledger, asked once. */
export function allNames() {
  names ??= ask('names').then((answer) => answer.document);
  return names;
}

/** The ledger has grown: there may be new names. */
export function forgetNames() {
  names = undefined;
}
