<?php

declare(strict_types=1);

namespace Admit;

/** Requests and replies of the doors: freezes events and classifies replies. No input or output. */
final class Wire
{
    public const RETRY_AFTER_MAX = 600.0;

    /** Refusals of the sender or the address: the gate did not look at the event. */
    private const NOT_OF_THE_EVENT = ['unauthorized', 'forbidden', 'not_found', 'method_not_allowed'];

    public static function freezeEvent(
        mixed $data,
        string $stream = 'default',
        ?string $key = null,
        ?string $contentType = null,
        ?float $occurredAt = null,
    ): Event {
        $path = self::streamPath($stream);
        if ($contentType !== null && !is_string($data)) {
            throw new Invalid('an event with a content type is a string of bytes');
        }
        $body = $contentType === null ? self::json($data) : $data;
        return self::frozen('events', $path, $key ?? self::newId(), $body, $occurredAt, $contentType);
    }

    /** @param array<string, mixed>|object $envelope */
    public static function freezeSkyra(array|object $envelope, ?float $occurredAt = null): Event
    {
        $whole = (array) $envelope + ['event_id' => 'evt_' . self::newId(), 'ts' => gmdate('Y-m-d\TH:i:s\Z')];
        return self::frozen('skyra', '/v1/ingress', $whole['event_id'], self::json($whole), $occurredAt);
    }

    /** @param array<string, mixed>|object $envelope */
    public static function freezePixelControl(array|object $envelope): Event
    {
        $whole = (array) $envelope;
        $transport = ['attempt' => 1, 'max_attempts' => 1, 'retry_backoff_ms' => 0, 'auth_mode' => 'none'];
        $body = self::json(['envelope' => (object) $whole, 'transport' => $transport]);
        $time = $whole['source_time'] ?? null;
        $occurred = (is_int($time) || is_float($time)) && $time > 0 ? (float) $time : null;
        return self::frozen('pixel-control', '/plugin/events', $whole['idempotency_key'] ?? null, $body, $occurred);
    }

    public static function streamPath(string $stream): string
    {
        if (preg_match('/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/D', $stream) !== 1) {
            throw new Invalid("$stream is not the name of a stream");
        }
        return "/v1/events/$stream";
    }

    private static function frozen(
        string $door,
        string $path,
        mixed $key,
        string $body,
        ?float $occurred,
        ?string $type = null,
    ): Event {
        if (!is_string($key) || preg_match('/^[!#-\[\]-~]{1,255}$/D', $key) !== 1) {
            throw new Invalid('a key has 1 to 255 visible ASCII characters, without quotes and backslashes');
        }
        if ($body === '') {
            throw new Invalid('an event has at least one byte');
        }
        return new Event(self::newId(), microtime(true), $door, $path, $type ?? 'application/json', $key, $body, $occurred);
    }

    private static function newId(): string
    {
        return bin2hex(random_bytes(16));
    }

    public static function json(mixed $data): string
    {
        $flags = JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_PRESERVE_ZERO_FRACTION | JSON_THROW_ON_ERROR;
        try {
            return json_encode($data, $flags);
        } catch (\JsonException $error) {
            throw new Invalid('the event is not JSON: ' . $error->getMessage(), 0, $error);
        }
    }

    /** @return list<string> */
    public static function requestHeaders(Event $event, ?string $key): array
    {
        $headers = self::commonHeaders($key, $event->type);
        if ($event->door === 'events') {
            $headers[] = "Idempotency-Key: $event->key";
        }
        return $headers;
    }

    /** @return list<string> */
    public static function commonHeaders(?string $key, string $type = 'application/json'): array
    {
        $headers = ['Accept: application/json', "Content-Type: $type", 'User-Agent: admit-client-php/0.1.0', 'Expect:'];
        if ($key !== null && $key !== '') {
            $headers[] = "Authorization: Bearer $key";
        }
        return $headers;
    }

    /** @param array<string, string> $headers names in lower case */
    public static function classify(Event $event, int $status, array $headers, string $body): Outcome
    {
        $reply = self::object($body);
        $accepted = self::acceptance($event, $status, $headers, $reply);
        if ($accepted !== null) {
            return $accepted;
        }
        $problem = $reply['error'] ?? null;
        $isFinal = $status >= 400 && $status <= 499;
        if ($event->door === 'pixel-control' && $status === 200) {
            $ack = $reply['ack'] ?? null;
            $problem = is_array($ack) && ($ack['status'] ?? null) === 'rejected' ? $ack : null;
            $isFinal = true;
        }
        $problem = is_array($problem) ? $problem : [];
        $code = is_string($problem['code'] ?? null) ? $problem['code'] : '';
        if ($event->door === 'skyra' && ($reply['event_id'] ?? $event->key) !== $event->key) {
            $isFinal = false;
        }
        $isFinal = $isFinal && ($problem['retryable'] ?? null) === false && $code !== '';
        if ($isFinal && !in_array($code, self::NOT_OF_THE_EVENT, true)) {
            $message = is_string($problem['message'] ?? null) ? $problem['message'] : '';
            return Outcome::rejected($code, $message, $status);
        }
        $reason = $code !== '' ? $code : "http_$status";
        return Outcome::pending($reason, retryAfter: self::retryAfter($headers, $problem));
    }

    /**
     * @param array<string, string> $headers
     * @param array<mixed> $reply
     */
    private static function acceptance(Event $event, int $status, array $headers, array $reply): ?Outcome
    {
        if ($event->door === 'events') {
            $isReceipt = is_string($reply['receipt_id'] ?? null) && is_string($reply['key'] ?? null);
            if (!$isReceipt || ($status !== 200 && $status !== 201)) {
                return null;
            }
            return Outcome::accepted(strtolower($headers['idempotent-replayed'] ?? '') === 'true', $reply);
        }
        if ($status !== 200) {
            return null;
        }
        if ($event->door === 'skyra') {
            $isAck = ($reply['status'] ?? null) === 'stored' && ($reply['event_id'] ?? null) === $event->key;
            return $isAck ? Outcome::accepted(null, $reply) : null;
        }
        $ack = is_array($reply['ack'] ?? null) ? $reply['ack'] : [];
        $isAck = ($ack['status'] ?? null) === 'accepted' && ($ack['idempotency_key'] ?? null) === $event->key;
        return $isAck ? Outcome::accepted(($ack['disposition'] ?? null) === 'duplicate', $reply) : null;
    }

    /**
     * The least pause that a reply demands, in seconds.
     *
     * @param array<string, string> $headers
     * @param array<mixed> $problem
     */
    public static function retryAfter(array $headers, array $problem): float
    {
        $seconds = $problem['retry_after_seconds'] ?? 0;
        $text = trim($headers['retry-after'] ?? '');
        if (preg_match('/^[0-9]{1,15}$/D', $text) === 1) {
            $seconds = (float) $text;
        } elseif (preg_match('/^[A-Za-z]{3}.*:/', $text) === 1) {
            $date = strtotime($text);
            $seconds = $date === false ? $seconds : $date - microtime(true);
        }
        return is_int($seconds) || is_float($seconds) ? (float) min(max($seconds, 0), self::RETRY_AFTER_MAX) : 0.0;
    }

    /** Full jitter: even between 0 and the doubled base, limited by the cap. Seconds. */
    public static function jitter(callable $random, int $attempt, float $base, float $cap): float
    {
        return $random() * min($cap, $base * 2.0 ** min($attempt - 1, 60));
    }

    /** @return array<mixed> a JSON object; empty if the text is anything else */
    public static function object(string $text): array
    {
        // Depth and size are limited: the text is a reply of at most 1 MiB.
        $value = json_decode($text, true, 64);
        return is_array($value) && !array_is_list($value) ? $value : [];
    }
}
