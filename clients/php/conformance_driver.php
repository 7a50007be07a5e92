<?php

// Driver of the conformance kit for this client: JSON lines on standard input and output.

declare(strict_types=1);

require __DIR__ . '/src/autoload.php';

use Admit\Client;

final class Driver
{
    private Client $client;
    private array $emissions = [];
    private \Generator $events;
    private bool $isStarted = false;
    private ?Admit\Claimed $current = null;

    public function perform(object $call): array
    {
        switch ($call->do) {
            case 'hello':
                return ['client' => 'php', 'abilities' => []];
            case 'open':
                return $this->open($call);
            case 'emit':
                return $this->emit($call);
            case 'wait':
                return self::outcome($this->emissions[$call->id]->wait($call->seconds));
            case 'flush':
                return ['pending' => $this->client->flush($call->seconds)];
            case 'close':
                return ['pending' => $this->client->close($call->seconds)];
            case 'discard':
                $this->client->discard($call->id);
                return [];
        }
        return $this->consume($call);
    }

    private function open(object $call): array
    {
        $o = (array) $call->options;
        // One attempt at a time.
        unset($o['concurrency']);
        $named = [];
        foreach ($o as $name => $value) {
            $named[lcfirst(str_replace('_', '', ucwords($name, '_')))] = $value;
        }
        $this->client = new Client($call->url, ...$named);
        return [];
    }

    private function emit(object $call): array
    {
        $emission = match ($call->door) {
            'skyra' => $this->client->emitSkyra($call->data),
            'pixel-control' => $this->client->emitPixelControl($call->data),
            default => $this->client->emit($call->data, $call->stream, $call->key, null, $call->occurred_at ?? null),
        };
        $this->emissions[$emission->event->id] = $emission;
        return ['id' => $emission->event->id, 'key' => $emission->event->key];
    }

    private static function outcome(Admit\Outcome $outcome): array
    {
        return ['outcome' => $outcome->state, 'duplicate' => $outcome->duplicate, 'code' => $outcome->code,
            'reason' => $outcome->reason, 'expired' => $outcome->expired];
    }

    private function consume(object $call): array
    {
        switch ($call->do) {
            case 'consume':
                $options = ['consumer' => $call->consumer, 'max' => $call->max, 'untilEmpty' => true];
                $this->events = $call->inbox
                    ? $this->client->consumeInbox(...$options)
                    : $this->client->consume($call->stream, ...$options);
                $this->isStarted = false;
                return [];
            case 'next':
                if ($this->isStarted) {
                    $this->events->next();
                }
                $this->isStarted = true;
                $this->current = $this->events->valid() ? $this->events->current() : null;
                $one = $this->current;
                return $one === null ? ['id' => null] : ['id' => $one->id, 'data' => $one->data, 'attempt' => $one->attempt];
            case 'settle':
                $this->current->{$call->how}();
                return [];
            case 'stop':
                unset($this->events);
                return [];
        }
        throw new \LogicException("unknown call $call->do");
    }
}

$kinds = [Admit\Full::class => 'full', Admit\Invalid::class => 'invalid', Admit\LeaseLost::class => 'lease_lost',
    Admit\Refused::class => 'refused'];
$driver = new Driver();
while (($line = fgets(STDIN)) !== false) {
    try {
        $answer = $driver->perform(json_decode($line, false, 64, JSON_THROW_ON_ERROR));
    } catch (Admit\Full | Admit\Invalid | Admit\LeaseLost | Admit\Refused $error) {
        $answer = ['error' => $kinds[$error::class], 'detail' => $error->getMessage()];
    }
    fwrite(STDOUT, json_encode((object) $answer) . "\n");
}
