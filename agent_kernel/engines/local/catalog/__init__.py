"""Which models and worker environments exist, how they are downloaded, verified and converted, and where they are
stored.
"""
