// Client of Admit, the front door for events. The specification is clients/SPEC.md in the repository.

export { Emission, Full, open } from './client.js'
export { Claimed, LeaseLost, Refused } from './consumer.js'
export { Invalid } from './wire.js'
