/** Something that the reader can put right, told in one line. */
export class Trouble extends Error {}

/** A request that the reader has taken back. */
export class Cancelled extends Error {
  constructor() {
    super("Stopped.");
  }
}
