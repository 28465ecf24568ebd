// What kind of message a JSON value is, and what it is about. Source: docs/wire.md, "Framing".

/** "request", "notification" or "answer". */
export function kindOf(message) {
  if (typeof message.method !== "string") return "answer";
  return message.id === undefined ? "notification" : "request";
}

/** The thread that a message names in its params or its result; null if it names none. */
export function threadOf(message) {
  const body = message.params ?? message.result;
  if (body === null || typeof body !== "object") return null;
  return (
    body.threadId ?? body.thread?.id ?? body.receipt?.threadId ?? body.target?.threadId ?? null
  );
}

/** The item that a notification is about; null if there is none. */
export function itemOf(message) {
  return message.params?.itemId ?? message.params?.item?.id ?? null;
}
