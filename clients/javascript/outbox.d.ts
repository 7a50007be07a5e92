/** The outbox has a damaged record; nothing was removed. */
export class Damaged extends Error {}

/** Another client uses the outbox. */
export class Locked extends Error {}
