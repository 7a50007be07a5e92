module example.org/admit/client

go 1.19
