"""PySpark's way to write to Kafka through SafeProducer. Needs the extra ``safeproducer[spark]``.

`import safeproducer.spark` loads neither PySpark nor pyarrow.
"""
