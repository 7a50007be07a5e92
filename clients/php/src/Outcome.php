<?php

declare(strict_types=1);

namespace Admit;

/** One of three outcomes: accepted, rejected, or pending. */
final class Outcome
{
    public const ACCEPTED = 'accepted';
    public const REJECTED = 'rejected';
    public const PENDING = 'pending';

    /**
     * @param ?bool $duplicate of an accepted event; null where the door does not say
     * @param ?array<mixed> $receipt reply of the gate for an accepted event
     * @param float $retryAfter least pause before the next attempt, in seconds
     */
    private function __construct(
        public readonly string $state,
        public readonly ?bool $duplicate = null,
        public readonly ?array $receipt = null,
        public readonly string $code = '',
        public readonly string $message = '',
        public readonly int $status = 0,
        public readonly string $reason = '',
        public readonly int $attempts = 0,
        public readonly bool $expired = false,
        public readonly float $retryAfter = 0.0,
    ) {
    }

    /** @param array<mixed> $receipt */
    public static function accepted(?bool $duplicate, array $receipt): self
    {
        return new self(self::ACCEPTED, duplicate: $duplicate, receipt: $receipt);
    }

    public static function rejected(string $code, string $message, int $status): self
    {
        return new self(self::REJECTED, code: $code, message: $message, status: $status);
    }

    public static function pending(string $reason, int $attempts = 0, bool $expired = false, float $retryAfter = 0.0): self
    {
        return new self(self::PENDING, reason: $reason, attempts: $attempts, expired: $expired, retryAfter: $retryAfter);
    }

    public function isOver(): bool
    {
        return $this->state !== self::PENDING || $this->expired;
    }
}
