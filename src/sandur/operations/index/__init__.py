"""List indexes: one per scope, so that a list costs one or two reads.

An index may lag behind the records that it lists, and never decides anything. A mark is written before a record changes
(I1). An update reads the index, then the record, then swaps (I2), also without a change (I3). A rebuild reads the
versions, then lists the records, then replaces the objects (I4).
"""
