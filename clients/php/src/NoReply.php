<?php

declare(strict_types=1);

namespace Admit;

/** No complete reply; the request may have been performed. */
final class NoReply extends \RuntimeException
{
}
