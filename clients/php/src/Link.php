<?php

declare(strict_types=1);

namespace Admit;

/** Requests with a deadline each, on one connection. Follows no redirect. */
final class Link
{
    private const REPLY_BYTES_MAX = 1024 * 1024;

    private \CurlHandle $curl;
    private string $base;

    public function __construct(string $url)
    {
        if (preg_match('#^https?://[^/]+#', $url) !== 1) {
            throw new \InvalidArgumentException("$url is not the http or https address of a gate");
        }
        $this->base = rtrim($url, '/');
        $this->curl = curl_init();
    }

    /**
     * @param list<string> $headers
     * @return array{int, array<string, string>, string} status, headers with names in lower case, and body
     */
    public function post(string $path, array $headers, string $body, float $timeout): array
    {
        $names = [];
        $content = '';
        curl_reset($this->curl);
        curl_setopt_array($this->curl, [
            CURLOPT_URL => $this->base . $path,
            CURLOPT_PROTOCOLS => CURLPROTO_HTTP | CURLPROTO_HTTPS,
            CURLOPT_POST => true,
            CURLOPT_POSTFIELDS => $body,
            CURLOPT_HTTPHEADER => $headers,
            CURLOPT_FOLLOWLOCATION => false,
            CURLOPT_NOSIGNAL => true,
            CURLOPT_TIMEOUT_MS => max(1, (int) round($timeout * 1000)),
            CURLOPT_HEADERFUNCTION => static function ($_, string $line) use (&$names): int {
                if (str_starts_with($line, 'HTTP/')) {
                    $names = [];
                }
                $parts = explode(':', $line, 2);
                if (count($parts) === 2) {
                    $names[strtolower(trim($parts[0]))] = trim($parts[1]);
                }
                return strlen($line);
            },
            CURLOPT_WRITEFUNCTION => static function ($_, string $part) use (&$content): int {
                $content .= $part;
                // Another number than the length ends the request.
                return strlen($content) > self::REPLY_BYTES_MAX ? -1 : strlen($part);
            },
        ]);
        if (curl_exec($this->curl) === false) {
            $isLate = curl_errno($this->curl) === CURLE_OPERATION_TIMEDOUT;
            throw new NoReply($isLate ? 'timeout' : 'connection');
        }
        return [curl_getinfo($this->curl, CURLINFO_RESPONSE_CODE), $names, $content];
    }
}
