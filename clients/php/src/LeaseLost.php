<?php

declare(strict_types=1);

namespace Admit;

/** The lease does not hold the event any more; another consumer may have it. */
final class LeaseLost extends \RuntimeException
{
}
