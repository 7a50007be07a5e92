<?php

declare(strict_types=1);

namespace Admit;

/**
 * Sends events to a gate until each is accepted or refused.
 *
 * Works within `wait`, `flush` and `close`: PHP has no threads. Without these calls nothing is sent.
 */
final class Client
{
    private Link $link;
    /** @var array<string, Emission> */
    private array $kept = [];
    /** @var array<string, Emission> */
    private array $queue = [];
    private int $bytes = 0;
    private float $pausedUntil = 0.0;
    private int $failedLinks = 0;
    private bool $isClosed = false;
    /** @var \Closure(): float */
    private \Closure $random;

    public function __construct(
        string $url,
        private ?string $key = null,
        private ?float $horizon = null,
        private float $timeout = 10.0,
        private float $backoffBase = 0.25,
        private float $backoffCap = 30.0,
        private int $pendingMax = 10_000,
        private int $pendingBytesMax = 64 * 1024 * 1024,
        ?callable $random = null,
    ) {
        if ($timeout <= 0) {
            throw new \InvalidArgumentException('the timeout must be positive');
        }
        $this->link = new Link($url);
        $this->random = ($random ?? static fn (): float => mt_rand() / mt_getrandmax())(...);
    }

    /** Queues an event for an `events` stream; with a content type, the data is sent as it is. */
    public function emit(
        mixed $data,
        string $stream = 'default',
        ?string $key = null,
        ?string $contentType = null,
        ?float $occurredAt = null,
    ): Emission {
        return $this->take(Wire::freezeEvent($data, $stream, $key, $contentType, $occurredAt));
    }

    /**
     * Queues an envelope for the `skyra` door.
     *
     * @param array<string, mixed>|object $envelope
     */
    public function emitSkyra(array|object $envelope, ?float $occurredAt = null): Emission
    {
        return $this->take(Wire::freezeSkyra($envelope, $occurredAt));
    }

    /**
     * Queues an envelope for the `pixel-control` door.
     *
     * @param array<string, mixed>|object $envelope
     */
    public function emitPixelControl(array|object $envelope): Emission
    {
        return $this->take(Wire::freezePixelControl($envelope));
    }

    /**
     * Events without a final outcome, also the expired ones.
     *
     * @return list<Emission>
     */
    public function pending(): array
    {
        return array_values($this->kept);
    }

    /** Removes an expired event. */
    public function discard(string $id): void
    {
        if (!isset($this->kept[$id]) || !$this->kept[$id]->outcome->expired) {
            throw new Invalid("$id is not expired");
        }
        $this->remove($this->kept[$id]);
    }

    /** Sends until no event is queued; returns how many are. */
    public function flush(float $seconds): int
    {
        $this->work(fn (): bool => $this->queue === [], $seconds);
        return count($this->queue);
    }

    /** Flushes and ends the client; returns the number of events that are still pending, which are lost. */
    public function close(float $seconds = 10.0): int
    {
        $left = $this->flush($seconds);
        $this->isClosed = true;
        return $left;
    }

    /**
     * Iterates over claimed events of a stream.
     *
     * @return \Generator<int, Claimed>
     */
    public function consume(
        string $stream = 'default',
        string $consumer = 'php',
        int $max = 10,
        int $leaseSeconds = 60,
        float $poll = 1.0,
        bool $untilEmpty = false,
    ): \Generator {
        $path = Wire::streamPath($stream);
        return $this->consumer($path, $leaseSeconds)->events($consumer, $max, $poll, $untilEmpty);
    }

    /**
     * Iterates over claimed envelopes of the inbox.
     *
     * @return \Generator<int, Claimed>
     */
    public function consumeInbox(
        string $consumer = 'php',
        int $max = 10,
        int $leaseSeconds = 60,
        float $poll = 1.0,
        bool $untilEmpty = false,
    ): \Generator {
        return $this->consumer('/v1/inbox', $leaseSeconds)->events($consumer, $max, $poll, $untilEmpty);
    }

    private function consumer(string $path, int $leaseSeconds): Consumer
    {
        $pause = fn (int $attempt): float => Wire::jitter($this->random, $attempt, $this->backoffBase, $this->backoffCap);
        return new Consumer($this->link, Wire::commonHeaders($this->key), $path, $leaseSeconds, $this->timeout, $pause);
    }

    private function take(Event $event): Emission
    {
        if ($this->isClosed) {
            throw new \LogicException('the client is closed');
        }
        $size = strlen($event->body);
        if (count($this->kept) >= $this->pendingMax || $this->bytes + $size > $this->pendingBytesMax) {
            throw new Full(sprintf(
                '%d events of %d bytes are queued; this event was not taken. Flush, then retry',
                count($this->kept),
                $this->bytes,
            ));
        }
        $emission = new Emission($event, $this);
        $this->kept[$event->id] = $this->queue[$event->id] = $emission;
        $this->bytes += $size;
        return $emission;
    }

    private function remove(Emission $emission): void
    {
        unset($this->kept[$emission->event->id]);
        $this->bytes -= strlen($emission->event->body);
    }

    /**
     * Sends what is due, until the condition holds or the time is over. Of `Emission` and this class.
     *
     * @param \Closure(): bool $isDone
     */
    public function work(\Closure $isDone, float $seconds): void
    {
        $deadline = self::now() + $seconds;
        while (!$isDone() && !$this->isClosed && $this->queue !== []) {
            $next = $this->earliest();
            $pause = max($next->due, $this->pausedUntil) - self::now();
            $left = $deadline - self::now();
            if ($left <= 0) {
                return;
            }
            if ($pause > 0) {
                Consumer::sleep(min($pause, $left));
                continue;
            }
            unset($this->queue[$next->event->id]);
            if (!$this->expire($next)) {
                $this->deliver($next, min($this->timeout, $left));
            }
        }
    }

    private function earliest(): Emission
    {
        $earliest = null;
        foreach ($this->queue as $emission) {
            if ($earliest === null || $emission->due < $earliest->due) {
                $earliest = $emission;
            }
        }
        return $earliest;
    }

    private function expire(Emission $emission): bool
    {
        $event = $emission->event;
        $since = $event->occurred ?? $event->at;
        if ($this->horizon === null || microtime(true) - $since < $this->horizon) {
            return false;
        }
        $emission->outcome = Outcome::pending('outside_horizon', $emission->outcome->attempts, true);
        return true;
    }

    private function deliver(Emission $emission, float $timeout): void
    {
        $event = $emission->event;
        $headers = Wire::requestHeaders($event, $this->key);
        $status = 0;
        try {
            [$status, $names, $body] = $this->link->post($event->path, $headers, $event->body, $timeout);
            $this->failedLinks = 0;
            $outcome = Wire::classify($event, $status, $names, $body);
        } catch (NoReply $error) {
            $this->failedLinks++;
            $this->pause($this->jitter($this->failedLinks));
            $outcome = Outcome::pending($error->getMessage());
        }
        if ($outcome->state === Outcome::PENDING) {
            if ($status === 429 || $status === 503) {
                $this->pause($outcome->retryAfter);
            }
            $this->retry($emission, $outcome);
            return;
        }
        $this->remove($emission);
        $emission->outcome = $outcome;
    }

    private function pause(float $seconds): void
    {
        $this->pausedUntil = max($this->pausedUntil, self::now() + $seconds);
    }

    private function retry(Emission $emission, Outcome $outcome): void
    {
        $attempts = $emission->outcome->attempts + 1;
        $emission->outcome = Outcome::pending($outcome->reason, $attempts);
        $emission->due = self::now() + $outcome->retryAfter + $this->jitter($attempts);
        $this->queue[$emission->event->id] = $emission;
    }

    private function jitter(int $attempt): float
    {
        return Wire::jitter($this->random, $attempt, $this->backoffBase, $this->backoffCap);
    }

    private static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}
