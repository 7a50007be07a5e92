<?php

declare(strict_types=1);

namespace Admit;

/** The queue is full; the event was not taken. */
final class Full extends \RuntimeException
{
}
