<?php

declare(strict_types=1);

namespace Admit;

/** An event as it is sent, the same at every attempt. Times are in seconds since 1970. */
final class Event
{
    public function __construct(
        public readonly string $id,
        public readonly float $at,
        public readonly string $door,
        public readonly string $path,
        public readonly string $type,
        public readonly string $key,
        public readonly string $body,
        public readonly ?float $occurred,
    ) {
    }
}
