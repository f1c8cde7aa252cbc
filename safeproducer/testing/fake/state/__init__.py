"""The cluster's state: topics, logs, credentials, faults in force. The cluster's own thread alone touches it."""
