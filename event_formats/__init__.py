"""CloudEvents 1.0 and 0.3 as bytes: HTTP requests and responses, AMQP messages, JSON. Pure.

names, attributes           the names of attributes, and the rules for their values
event, errors               an event in memory, and why bytes are not an event
json_format                 an event, or a batch of them, as JSON
http_binding                binary, structured and batched mode over HTTP
amqp_binding                binary and structured mode over AMQP: how events are stored in a log
http_to_amqp, amqp_to_http  binary mode of one binding to that of the other in one pass, without an event:
                            fast, and with the same result, or none
memory                      results for keys that repeat, bounded
"""
