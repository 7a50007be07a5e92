<?php

declare(strict_types=1);

namespace Admit;

/** The event cannot be sent as it is; a retry does not help. */
final class Invalid extends \RuntimeException
{
}
