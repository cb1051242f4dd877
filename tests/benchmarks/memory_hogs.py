"""Work of known size for the measurement of memory; sizes in MB."""


def hog(before, during, freed=0):
    if before < 0:
        raise ValueError("no such hog")
    kept = _touched(before)
    _touched(freed)  # and given back
    return lambda: (len(_touched(during)), len(kept))


def _touched(size):
    return bytes(size) and bytearray(b"x") * (size << 20)
