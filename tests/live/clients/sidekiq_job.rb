# A worker of Sidekiq whose jobs book in Redis what they are given.
require "sidekiq"

redis = { url: ENV["REDIS_URL"], id: ENV["REDIS_ID"] }
Sidekiq.configure_server { |config| config.redis = redis }

class Book
  include Sidekiq::Worker

  def perform(text)
    Sidekiq.redis { |connection| connection.rpush("booked", text) }
  end
end
