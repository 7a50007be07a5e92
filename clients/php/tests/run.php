<?php

// Unit tests: php tests/run.php

declare(strict_types=1);

require __DIR__ . '/../src/autoload.php';

use Admit\Event;
use Admit\Invalid;
use Admit\Wire;

function expect(mixed $found, mixed $wanted, string $what): void
{
    if ($found !== $wanted) {
        throw new RuntimeException("$what is " . var_export($found, true) . ', not ' . var_export($wanted, true));
    }
}

function invalid(callable $call, string $what): void
{
    try {
        $call();
    } catch (Invalid) {
        return;
    }
    throw new RuntimeException("$what was taken");
}

$tests = [
    'every reply of the table is classified as specified' => function (): void {
        $table = file_get_contents(__DIR__ . '/../../conformance/replies.json');
        foreach (json_decode($table, false, 64, JSON_THROW_ON_ERROR) as $reply) {
            $headers = array_change_key_case((array) $reply->headers);
            $event = new Event('0', 0.0, $reply->door, '/', 'application/json', $reply->key, '{}', null);
            $text = $reply->text ?? json_encode($reply->body);
            $found = Wire::classify($event, $reply->status, $headers, $text);
            foreach ((array) $reply->expect as $member => $value) {
                $name = ['outcome' => 'state', 'retry_after' => 'retryAfter'][$member] ?? $member;
                $wanted = $name === 'retryAfter' ? (float) $value : $value;
                expect($found->$name, $wanted, "$reply->name: $member");
            }
        }
    },
    'a date of Retry-After is a number of seconds' => function (): void {
        $seconds = Wire::retryAfter(['retry-after' => gmdate('D, d M Y H:i:s', time() + 100) . ' GMT'], []);
        expect($seconds > 0 && $seconds <= 100, true, "the pause of $seconds s");
    },
    'the pause is spread from zero to the doubled base and capped' => function (): void {
        for ($attempt = 1; $attempt < 200; $attempt++) {
            $top = min(30.0, 0.25 * 2.0 ** min($attempt - 1, 60));
            foreach ([0.0, 0.5, 1.0] as $random) {
                expect(Wire::jitter(fn (): float => $random, $attempt, 0.25, 30.0), $random * $top, "attempt $attempt");
            }
        }
    },
    'the bytes are frozen at emit' => function (): void {
        $data = new stdClass();
        $data->n = 1;
        $event = Wire::freezeEvent($data);
        $data->n = 2;
        expect($event->body, '{"n":1}', 'the body');
    },
    'keys of two events differ' => function (): void {
        expect(Wire::freezeEvent(1)->key !== Wire::freezeEvent(1)->key, true, 'the difference');
    },
    'what JSON cannot represent is invalid' => function (): void {
        invalid(fn () => Wire::freezeEvent(NAN), 'NAN');
        invalid(fn () => Wire::freezeEvent("\xff"), 'a text that is not UTF-8');
        invalid(fn () => Wire::freezeEvent([1], contentType: 'text/plain'), 'an array with a content type');
        invalid(fn () => Wire::freezeEvent('', contentType: 'text/plain'), 'an empty body');
    },
    'a number with a fraction keeps its kind' => function (): void {
        expect(Wire::freezeEvent(['a' => 1.0, 'b' => 1])->body, '{"a":1.0,"b":1}', 'the body');
    },
];

$failed = 0;
foreach ($tests as $name => $test) {
    try {
        $test();
        echo "ok      $name\n";
    } catch (Throwable $error) {
        $failed++;
        echo "FAILED  $name: {$error->getMessage()}\n";
    }
}
exit($failed > 0 ? 1 : 0);
