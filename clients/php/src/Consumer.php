<?php

declare(strict_types=1);

namespace Admit;

/** Claims events, iterates over them and settles them. */
final class Consumer
{
    /**
     * @param list<string> $headers
     * @param \Closure(int): float $pause jitter after an attempt, in seconds
     */
    public function __construct(
        private Link $link,
        private array $headers,
        private string $path,
        private int $leaseSeconds,
        private float $timeout,
        private \Closure $pause,
    ) {
    }

    /** @return \Generator<int, Claimed> events that were not handed out are released at the end */
    public function events(string $consumer, int $max, float $poll, bool $untilEmpty): \Generator
    {
        $waiting = [];
        $wanted = ['consumer' => $consumer, 'max' => $max, 'lease_seconds' => $this->leaseSeconds];
        try {
            while (true) {
                $entries = $this->call("$this->path/claim", $wanted, null)['events'] ?? [];
                foreach ($entries as $entry) {
                    $waiting[] = new Claimed($this, $entry);
                }
                if ($waiting === [] && $untilEmpty) {
                    return;
                }
                if ($waiting === []) {
                    self::sleep($poll * mt_rand() / mt_getrandmax());
                }
                while ($waiting !== []) {
                    yield array_shift($waiting);
                }
            }
        } finally {
            foreach ($waiting as $claimed) {
                try {
                    $claimed->release();
                } catch (LeaseLost | Refused) {
                    continue;
                }
            }
        }
    }

    /** @return array<mixed> */
    public function settle(string $id, string $status, string $lease, float $expires): array
    {
        $change = ['status' => $status, 'lease' => $lease];
        if ($status === 'extended') {
            $change['lease_seconds'] = $this->leaseSeconds;
        }
        return $this->call($this->path . '/' . rawurlencode($id), $change, $expires);
    }

    /** End of a lease: the earlier of the gate's time and the requested length. */
    public function endOf(string $text): float
    {
        $until = \DateTimeImmutable::createFromFormat('Y-m-d\TH:i:s.vP', $text);
        $left = $until === false ? INF : (float) $until->format('U.v') - microtime(true);
        return self::now() + min($left, $this->leaseSeconds);
    }

    /**
     * Repeats a request after faults until the deadline, if there is one.
     *
     * @param array<string, mixed> $content
     * @return array<mixed>
     */
    private function call(string $path, array $content, ?float $deadline): array
    {
        $body = Wire::json($content);
        for ($attempt = 1; $deadline === null || self::now() < $deadline; $attempt++) {
            $pause = ($this->pause)($attempt);
            try {
                [$status, $headers, $text] = $this->link->post($path, $this->headers, $body, $this->timeout);
                $answer = Wire::object($text);
                if ($status === 200 && $answer !== []) {
                    return $answer;
                }
                $problem = is_array($answer['error'] ?? null) ? $answer['error'] : [];
                if ($status >= 400 && $status <= 499 && ($problem['retryable'] ?? null) === false) {
                    self::refuse($status, $problem);
                }
                $pause += Wire::retryAfter($headers, $problem);
            } catch (NoReply) {
                // Repeated after the pause.
            }
            self::sleep($deadline === null ? $pause : min($pause, $deadline - self::now()));
        }
        throw new LeaseLost('the lease expired before the gate confirmed the change; claim the event again');
    }

    /** @param array<mixed> $problem */
    private static function refuse(int $status, array $problem): never
    {
        $code = (string) ($problem['code'] ?? '');
        $message = (string) ($problem['message'] ?? '');
        throw $code === 'lease_lost' ? new LeaseLost($message) : new Refused($code, $message, $status);
    }

    public static function sleep(float $seconds): void
    {
        if ($seconds > 0) {
            usleep((int) ceil($seconds * 1e6));
        }
    }

    private static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}
