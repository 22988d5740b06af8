"""What the maker of requests does not know by itself."""

import schemathesis

schemathesis.serializer.alias("application/x-tar", "application/octet-stream")
schemathesis.serializer.alias("application/zstd", "application/octet-stream")
