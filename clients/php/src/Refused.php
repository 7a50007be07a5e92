<?php

declare(strict_types=1);

namespace Admit;

/** The gate refused a request of a consumer; a retry does not help. */
final class Refused extends \RuntimeException
{
    public function __construct(public readonly string $reason, string $message, public readonly int $status)
    {
        parent::__construct("$reason: $message");
    }
}
