"""`safeproducer run` inside the application's processes: the folder `path/` is first on their PYTHONPATH.

It holds a package `confluent_kafka`, which becomes the real one and then has `producers` replace the producers there.
Whatever fails here must not end the application. A process that imports no confluent_kafka loads nothing of this.
"""
