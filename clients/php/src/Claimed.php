<?php

declare(strict_types=1);

namespace Admit;

/** An event that is leased to this consumer. `data` is the payload of an inbox entry. */
final class Claimed
{
    public readonly string $id;
    public readonly mixed $data;
    public readonly int $attempt;
    private float $expires;

    /** @param array<mixed> $entry */
    public function __construct(private Consumer $consumer, public readonly array $entry)
    {
        $this->id = $entry['event_id'] ?? $entry['receipt_id'];
        $this->data = $entry['data'] ?? $entry['payload'] ?? null;
        $this->attempt = $entry['attempt'] ?? 1;
        $this->expires = $consumer->endOf($entry['lease_expires_at'] ?? '');
    }

    /** Finished. */
    public function ack(): void
    {
        $this->settle('done');
    }

    /** Finished without success; not handed out again. */
    public function fail(): void
    {
        $this->settle('failed');
    }

    /** Available again at once. */
    public function release(): void
    {
        $this->settle('released');
    }

    /** Leased for another length of the lease from now. */
    public function extend(): void
    {
        $answer = $this->settle('extended');
        $this->expires = $this->consumer->endOf($answer['lease_expires_at'] ?? '');
    }

    /** @return array<mixed> */
    private function settle(string $status): array
    {
        return $this->consumer->settle($this->id, $status, $this->entry['lease'], $this->expires);
    }
}
