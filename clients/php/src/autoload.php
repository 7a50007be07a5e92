<?php

// Loads the classes of this folder, for programs without Composer.

declare(strict_types=1);

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Admit\\')) {
        $file = __DIR__ . '/' . substr($class, 6) . '.php';
        if (is_file($file)) {
            require $file;
        }
    }
});
