/** An error that the reader can fix, explained in one line. */
export class UserError extends Error {}

/** A request that the reader has cancelled. */
export class Cancelled extends Error {
  constructor() {
    super("Stopped.");
  }
}
