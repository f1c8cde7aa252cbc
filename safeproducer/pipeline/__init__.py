"""The life of a record between produce() and its delivery callback. ARCHITECTURE.md is its theory of operation.

librdkafka batches, retries and sends. This package decides when a record may be given to it, counts what was given, and
says of each record how it ended. A record is given at once (the direct path) as long as nothing speaks against it. If
something does, a throttle time, a silent leader, a long round trip, it waits in this process (the buffered path) and
leaves as one of a counted batch, which becomes exactly one ProduceRequest. Therefore a broker that is not ready has
little of ours in its queues, and at a record's deadline it is mostly known whether the record can be in the log.
"""
