<?php

declare(strict_types=1);

namespace Admit;

/** An emitted event and what is known about it. */
final class Emission
{
    /** Of the client. */
    public Outcome $outcome;

    /** When the next attempt is due; of the client. */
    public float $due = 0.0;

    public function __construct(public readonly Event $event, private Client $client)
    {
        $this->outcome = Outcome::pending('not_sent');
    }

    /** Sends what is due until this event has an outcome; pending when the time is over or the event expired. */
    public function wait(float $seconds): Outcome
    {
        $this->client->work(fn (): bool => $this->outcome->isOver(), $seconds);
        return $this->outcome;
    }
}
